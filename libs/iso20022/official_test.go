package iso20022_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/devstack/devtest"
	"github.com/cabine-pix/cabine/libs/iso20022"
)

// official is where the SPI's own schemas and examples lie beside a checkout. They may not be given on, so on a machine
// that does not have them there is nothing to compare with.
const official = "../../../shared/data/spi"

func haveOfficial(t *testing.T) bool {
	t.Helper()
	_, err := os.Stat(official)
	if err != nil {
		t.Log("the SPI's schemas and examples are not on this machine: nothing is compared")
	}
	return err == nil
}

// xmllint runs it without network on a message.
func xmllint(t *testing.T, message string, args ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "message.xml")
	require.NoError(t, os.WriteFile(file, []byte(message), 0o600))
	said, err := devtest.XMLLint(t, append(append([]string{"--nonet"}, args...), file)...)
	require.NoError(t, err, "%s", message)
	return said
}

// renew makes a message of an old catalogue one of today's, whose trees are the same: the namespace, the version, and the
// time of the header, which one old sample does not repeat.
func renew(message string) string {
	for old, now := range map[string]string{"admi.002.spi.1.1": "admi.002.spi.1.5", "pibr.001.spi.1.0": "pibr.001.spi.1.3"} {
		msgType, version, _ := strings.Cut(now, ".spi.")
		message = strings.Replace(message, `xmlns="`+old+`.xsd"`, `xmlns="https://www.bcb.gov.br/pi/`+msgType+`/`+version+`"`, 1)
		message = strings.Replace(message, ">"+old+"<", ">"+now+"<", 1)
	}
	return strings.Replace(message, "<CreDtTm>2020-03-13T", "<CreDtTm>2020-03-12T", 1)
}

// Every official example comes back as it was, but for what canonicalisation evens out, white space between elements and
// the signature, which is not kept. libxml2 does the canonicalisation. And what is built is canonical already.
func TestOfficialExamplesComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	if !haveOfficial(t) {
		return
	}
	examples, err := filepath.Glob(official + "/examples/*.xml")
	require.NoError(t, err)
	samples, err := filepath.Glob(official + "/signed/*.xml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(examples)+len(samples), 8)

	v := iso20022.DefaultVersions()
	inSignature := regexp.MustCompile(`(?s)\s*<ds:Signature .*</ds:Signature>\s*`)
	for _, path := range append(examples, samples...) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		example := renew(string(text))
		got, err := v.Parse([]byte(example))
		require.NoError(t, err, path)
		require.Equal(t, inSignature.MatchString(example), got.Signed, path)
		built, err := v.Build(got.Header, got.Document)
		require.NoError(t, err, path)

		unsigned := xmllint(t, inSignature.ReplaceAllString(example, ""), "--noblanks")
		want := xmllint(t, unsigned, "--exc-c14n")
		require.Equal(t, want, xmllint(t, string(built), "--exc-c14n"), path)
		_, body, declared := strings.Cut(string(built), `<?xml version="1.0" encoding="UTF-8" standalone="no"?>`)
		require.True(t, declared)
		require.Equal(t, want, body, "what is built is canonical")
	}
}

// schema writes a schema that knows messages and signatures, which the official ones leave to who uses them.
func schema(t *testing.T, namespace, file string) string {
	t.Helper()
	dir, err := filepath.Abs(official + "/xsd")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "both.xsd")
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, `<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
<xs:import namespace=%q schemaLocation=%q/>
<xs:import namespace="http://www.w3.org/2000/09/xmldsig#" schemaLocation=%q/>
</xs:schema>`, namespace, filepath.Join(dir, file), filepath.Join(dir, "xmldsig.0.1.xsd")), 0o600))
	return path
}

// What is built is valid by the official schemas, once there is a signature in it. Schemas of today exist for pacs.008
// and pacs.002. Those of admi.002 and pibr are of the first catalogue: its namespaces, and ISPBs of digits alone.
func TestBuiltIsValidByTheOfficialSchemas(t *testing.T) {
	t.Parallel()
	if !haveOfficial(t) {
		return
	}
	random := sampler{devtest.Rand(t)}
	files := map[string]string{ // of the message type: the schema, and the namespace that it is for
		"pacs.008": "pacs.008.spi.1.16.xsd", "pacs.002": "pacs.002.spi.1.17.xsd",
		"admi.002": "admi.002.spi.1.1.xsd", "pibr.001": "pibr.001.spi.1.0.xsd", "pibr.002": "pibr.002.spi.1.0.xsd",
	}
	built := map[string][]string{}
	for range 40 {
		for _, m := range random.all() {
			if files[m.header.MsgType] == "" {
				continue
			}
			m.header.From, m.header.To = digitsOf(m.header.From), digitsOf(m.header.To)
			text := string(signed(m.build(t), signature))
			built[m.header.MsgType] = append(built[m.header.MsgType], text)
		}
	}
	for msgType, messages := range built {
		namespace := "https://www.bcb.gov.br/pi/" + msgType + "/" + iso20022.DefaultVersions()[msgType][0]
		old := !strings.HasPrefix(msgType, "pacs.")
		target := namespace
		if old {
			target = files[msgType]
		}
		args := []string{"--nonet", "--noout", "--schema", schema(t, target, files[msgType])}
		for i, message := range messages {
			file := filepath.Join(t.TempDir(), fmt.Sprintf("%s-%d.xml", msgType, i))
			message = strings.Replace(message, `xmlns="`+namespace+`"`, `xmlns="`+target+`"`, 1)
			require.NoError(t, os.WriteFile(file, []byte(message), 0o600))
			args = append(args, file)
		}
		said, err := devtest.XMLLint(t, args...)
		require.NoError(t, err, "%s", said)
		require.Equal(t, len(messages), strings.Count(said, " validates"), msgType)
	}
}

// mutant changes one thing in a message: an element goes, comes twice or changes place with its neighbour, or a character
// changes.
func (s sampler) mutant(message string) string {
	elements := regexp.MustCompile(`<([A-Za-z]+)( Ccy="BRL")?>[^<]*</[A-Za-z]+>`).FindAllStringIndex(message, -1)
	n := s.IntN(len(elements) - 1)
	from, to := elements[n][0], elements[n][1]
	element := message[from:to]
	switch s.IntN(6) {
	case 0:
		return message[:from] + message[to:]
	case 1:
		return message[:to] + message[from:]
	case 2:
		next := elements[n+1]
		return message[:from] + message[next[0]:next[1]] + message[to:next[0]] + element + message[next[1]:]
	case 3:
		value := from + strings.IndexByte(element, '>') + 1
		return message[:value] + s.from(alnum+" .-ção", s.IntN(40)) + message[to-len(element)+strings.LastIndex(element, "</"):]
	case 4:
		return message[:from] + strings.Replace(element, s.from(numbers, 1), s.from("0123456789.-+ZEa| ", 1), 1) + message[to:]
	}
	return message[:from] + "<" + s.from("ABCabc", 3) + "/>" + message[from:]
}

// beyondSchema are the reasons for which a valid message is refused, as doc.go says.
func beyondSchema(err error) bool {
	for _, reason := range []string{
		"is not BizMsgIdr", "is not CreDt", "is not the number of transactions", "MsgDefIdr: want",
		"want an EndToEndId or a RtrId", // the schemas' [E|D] takes a bar
	} {
		if strings.Contains(err.Error(), reason) {
			return true
		}
	}
	return false
}

// The official schemas, by libxml2, and we agree on what is a message.
func TestWeReadWhatTheOfficialSchemasAllow(t *testing.T) {
	t.Parallel()
	if !haveOfficial(t) {
		return
	}
	s, v := sampler{devtest.Rand(t)}, iso20022.DefaultVersions()
	for msgType, file := range map[string]string{"pacs.008": "pacs.008.spi.1.16.xsd", "pacs.002": "pacs.002.spi.1.17.xsd"} {
		dir := t.TempDir()
		namespace := "https://www.bcb.gov.br/pi/" + msgType + "/" + v[msgType][0]
		args, messages := []string{"--nonet", "--noout", "--schema", schema(t, namespace, file)}, map[string]string{}
		for len(messages) < 200 {
			m := s.all()[s.IntN(4)] // the first four are these two types
			if m.header.MsgType != msgType {
				continue
			}
			path := filepath.Join(dir, fmt.Sprintf("%d.xml", len(messages)))
			messages[path] = s.mutant(string(signed(m.build(t), signature)))
			require.NoError(t, os.WriteFile(path, []byte(messages[path]), 0o600))
			args = append(args, path)
		}
		said, _ := devtest.XMLLint(t, args...) // most are invalid, which is an error of its own
		valid := 0
		for path, message := range messages {
			_, err := v.Parse([]byte(message))
			switch isValid := strings.Contains(said, path+" validates"); {
			case isValid && err != nil:
				require.True(t, beyondSchema(err), "valid, and refused: %v\n%s", err, message)
			case isValid:
				valid++
			default:
				require.Error(t, err, "invalid, and read: %s", message)
			}
		}
		require.Greater(t, valid, 10)
		require.Less(t, valid, len(messages)/2)
	}
}
