package signature

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// IssuerName writes the issuer of a certificate as the SPI does: most specific part first, comma and space between,
// special characters escaped as RFC 4514 has it.
func IssuerName(cert *x509.Certificate) (string, error) {
	// From the bytes: pkix.Name loses the order, and a name of several units has one.
	var name pkix.RDNSequence
	if rest, err := asn1.Unmarshal(cert.RawIssuer, &name); err != nil || len(rest) > 0 {
		return "", fmt.Errorf("signature: issuer of the certificate is not a name: %w", err)
	}
	parts := make([]string, 0, len(name))
	for _, part := range slices.Backward(name) {
		parts = append(parts, pkix.RDNSequence{part}.String())
	}
	return strings.Join(parts, ", "), nil
}

// certificateID is what a certificate is found by: its serial number and its issuer. Signers differ in the white space
// after a comma, and a name that was written in two lines is no other name.
func certificateID(issuer string, serial *big.Int) string {
	parts := strings.Split(strings.Join(strings.Fields(issuer), " "), ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return serial.String() + "/" + strings.Join(parts, ",")
}
