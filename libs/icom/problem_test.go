package icom_test

import (
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/icom"
)

func TestProblemRoundTrip(t *testing.T) {
	t.Parallel()
	p := icom.Problem{
		Type:  icom.ProblemType(icom.ProblemInvalidHeader),
		Title: `Um dos cabeçalhos <enviados> & "outros" não era esperado`,
	}
	require.Equal(t, "https://icom.pi.rsfn.net.br/api/v1/error/invalidHeader", p.Type)
	require.Equal(t, "invalidHeader", p.Name())
	again, err := icom.ParseProblem(strings.NewReader(string(icom.MarshalProblem(p))))
	require.NoError(t, err)
	require.Equal(t, p, again)
}

func TestParseProblem(t *testing.T) {
	t.Parallel()
	p, err := icom.ParseProblem(strings.NewReader("<p:problem xmlns:p=\"urn:ietf:rfc:7807\">\n" +
		"<p:type> a/b </p:type><p:status>400</p:status><p:title>T</p:title></p:problem>"))
	require.NoError(t, err)
	require.Equal(t, icom.Problem{Type: "a/b", Title: "T"}, p)
	require.Equal(t, "b", p.Name())
	require.Empty(t, icom.Problem{}.Name())

	for _, s := range []string{
		"", "erro interno", "<html><body/></html>", "<problem><type>x</type>", "{}",
		"<problem>" + strings.Repeat(" ", icom.MaxProblemBytes) + "</problem>",
		`<!DOCTYPE p [<!ENTITY e "x">]><problem><type>&e;</type></problem>`,
	} {
		_, err := icom.ParseProblem(strings.NewReader(s))
		require.Error(t, err, s)
	}
	broken := errors.New("reset")
	_, err = icom.ParseProblem(iotest.ErrReader(broken))
	require.ErrorIs(t, err, broken)
}

func FuzzParseProblem(f *testing.F) {
	f.Add(string(icom.MarshalProblem(icom.Problem{Type: icom.ProblemType("forbidden"), Title: "Não"})))
	f.Add(strings.Repeat("<problem>", 1000))
	f.Fuzz(func(t *testing.T, s string) {
		p, err := icom.ParseProblem(strings.NewReader(s))
		if err != nil {
			return
		}
		again, err := icom.ParseProblem(strings.NewReader(string(icom.MarshalProblem(p))))
		if len(icom.MarshalProblem(p)) <= icom.MaxProblemBytes {
			require.NoError(t, err)
			require.Equal(t, p, again)
		}
	})
}
