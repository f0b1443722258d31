package telemetry

import "strings"

// kind is what the name of an attribute says about its value.
type kind uint8

const (
	plain      kind = iota
	credential      // masked whole, also in text as name=value
	header          // a credential whose value goes to the end of the line
	personal        // masked whole: documents, Pix keys, accounts
	keyish          // a UUID under it is an EVP and is masked; other values stay
)

// classify judges a name; case, '_', '-', '.' and spaces do not count.
func classify(name string) kind {
	var buf [32]byte
	n := 0
	for i := range len(name) {
		c := name[i]
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		switch c {
		case '_', '-', '.', ' ':
			continue
		}
		if n == len(buf) { // keep the end: it is the noun
			copy(buf[:], buf[1:])
			n--
		}
		buf[n] = c
		n++
	}
	return classifyNormal(string(buf[:n]))
}

// classifyNormal judges a name of lower-case letters and digits. English and Portuguese
// stand side by side: both occur in BACEN's interfaces and in what participants send.
func classifyNormal(n string) kind {
	switch n {
	case "authorization", "proxyauthorization", "cookie", "setcookie":
		return header
	case "pwd", "pass", "apikey", "xapikey", "privatekey", "pgpassword", "dsn", "databaseurl":
		return credential
	case "cpf", "cnpj", "cpfcnpj", "document", "documento", "taxid", "inscricao", "inscricaofederal",
		"pixkey", "chave", "chavepix", "evp", "dictkey", "addressingkey", "email", "phone", "telefone", "celular",
		"account", "accountnumber", "accountid", "conta", "contatransacional", "numeroconta", "numconta",
		"payeraccount", "payeeaccount", "debtoraccount", "creditoraccount", "dbtracct", "cdtracct",
		"iban", "pan", "cardnumber":
		return personal
	case "key", "keys", "value", "valor", "entry", "alias":
		return keyish
	}
	for _, suffix := range [...]string{"password", "passwd", "passphrase", "senha", "secret", "token"} {
		if strings.HasSuffix(n, suffix) {
			return credential
		}
	}
	for _, suffix := range [...]string{"cpf", "cnpj", "pixkey", "accountnumber", "numerodaconta", "numeroconta"} {
		if strings.HasSuffix(n, suffix) {
			return personal
		}
	}
	return plain
}

// spokenCredential reports whether "name: x" in prose gives a secret away.
func spokenCredential(name string) bool {
	k := strings.ToLower(name)
	return !strings.HasSuffix(k, "token") && k != "pass" && k != "dsn"
}

// countable reports whether a name is that of a quantity or an instant, so that an
// integer under it is no document whatever its digits.
func countable(name string) bool {
	for _, suffix := range [...]string{"_ns", "_us", "_ms", "_at", "_unix", "_bytes", "_count", "port", "pid", "seq", "term", "size"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

// evp reports whether s is a UUID, dashed or bare.
func evp(s string) bool {
	if len(s) != 36 && len(s) != 32 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if len(s) == 36 && (i == 8 || i == 13 || i == 18 || i == 23) {
			if c != '-' {
				return false
			}
			continue
		}
		if !digit(c) && (c|0x20 < 'a' || c|0x20 > 'f') {
			return false
		}
	}
	return true
}
