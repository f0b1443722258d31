package corebank_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/corebank"
)

func key(id string) corebank.Key {
	return corebank.Key{ID: id, Secret: []byte(strings.Repeat(id, corebank.MinSecret))[:corebank.MinSecret]}
}

func TestQuestionAndAnswerFitEachOther(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	cabine, core := corebank.Keys{key("new"), key("old")}, corebank.Keys{key("old"), key("new")}
	asked, answered := http.Header{}, http.Header{}
	question := cabine.SignQuestion(asked, []byte("q"), now)
	got, err := core.CheckQuestion(asked, []byte("q"), now.Add(4*time.Minute))
	require.NoError(t, err)
	require.Equal(t, question, got)
	core.SignAnswer(answered, []byte("a"), now, got)
	require.NoError(t, cabine.CheckAnswer(answered, []byte("a"), question), "signed with the other key, during a rotation")

	_, err = core.CheckQuestion(asked, []byte("q"), now.Add(12*time.Hour))
	require.ErrorIs(t, err, corebank.ErrSignature)
	require.ErrorContains(t, err, "off by 12h0m0s")
	_, err = core.CheckQuestion(asked, []byte("p"), now)
	require.ErrorIs(t, err, corebank.ErrSignature)
	_, err = core.CheckQuestion(http.Header{}, []byte("q"), now)
	require.ErrorIs(t, err, corebank.ErrSignature)
	_, err = corebank.Keys{key("old")}.CheckQuestion(asked, []byte("q"), now)
	require.ErrorContains(t, err, `key "new" is unknown`)

	require.ErrorIs(t, cabine.CheckAnswer(answered, []byte("b"), question), corebank.ErrSignature)
	other := cabine.SignQuestion(http.Header{}, []byte("q"), now.Add(time.Millisecond))
	require.ErrorIs(t, cabine.CheckAnswer(answered, []byte("a"), other), corebank.ErrSignature, "an answer heard before")
	require.ErrorIs(t, cabine.CheckAnswer(asked, []byte("q"), question), corebank.ErrSignature, "a question is no answer")
	answered.Set(corebank.HeaderSignature, "00")
	require.ErrorIs(t, cabine.CheckAnswer(answered, []byte("a"), question), corebank.ErrSignature)
}

func TestKeysAreChecked(t *testing.T) {
	t.Parallel()
	require.NoError(t, corebank.Keys{key("a"), key("b")}.Validate())
	require.Error(t, corebank.Keys{}.Validate())
	require.Error(t, corebank.Keys{key("a"), key("a")}.Validate())
	err := corebank.Keys{{ID: "a", Secret: []byte("hunter2")}}.Validate()
	require.ErrorContains(t, err, "has 7 bytes, want at least 32")
	require.NotContains(t, err.Error(), "hunter2")
}

func TestAnswersAreChecked(t *testing.T) {
	t.Parallel()
	id := "E99999004202607010900abcdefghijk"
	require.NoError(t, corebank.Answer{EndToEndID: id, Decision: corebank.Accepted}.Check(id))
	require.NoError(t, corebank.Answer{EndToEndID: id, Decision: corebank.Rejected, Reason: "AC03", Detail: "conta não existe"}.Check(id))
	for name, bad := range map[string]corebank.Answer{
		"nothing":              {},
		"another payment":      {EndToEndID: "E", Decision: corebank.Accepted},
		"no decision":          {EndToEndID: id},
		"accepted with reason": {EndToEndID: id, Decision: corebank.Accepted, Reason: "AC03"},
		"rejected without":     {EndToEndID: id, Decision: corebank.Rejected},
		"the SPI's own code":   {EndToEndID: id, Decision: corebank.Rejected, Reason: "AB03"},
		"unknown code":         {EndToEndID: id, Decision: corebank.Rejected, Reason: "XX99"},
		"endless detail":       {EndToEndID: id, Decision: corebank.Accepted, Detail: strings.Repeat("x", 141)},
	} {
		require.ErrorIs(t, bad.Check(id), corebank.ErrAnswer, name)
	}
}
