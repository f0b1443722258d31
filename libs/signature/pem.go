package signature

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
)

// LoadKey reads an RSA private key from a PEM file: PKCS#8 or PKCS#1, not encrypted. Errors quote nothing of the file.
func LoadKey(path string) (crypto.Signer, error) {
	blocks, err := readPEM(path)
	if err != nil {
		return nil, err
	}
	for _, block := range blocks {
		switch block.Type {
		case "PRIVATE KEY":
			key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, fmt.Errorf("signature: %s: key cannot be read", path)
			}
			signer, ok := key.(crypto.Signer)
			if !ok {
				return nil, fmt.Errorf("signature: %s: key cannot sign", path)
			}
			return fit(path, signer)
		case "RSA PRIVATE KEY":
			key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
			if err != nil {
				return nil, fmt.Errorf("signature: %s: key cannot be read", path)
			}
			return fit(path, key)
		}
	}
	return nil, fmt.Errorf("signature: %s: no private key in clear", path)
}

func fit(path string, key crypto.Signer) (crypto.Signer, error) {
	if err := checkKey(key.Public()); err != nil {
		return nil, fmt.Errorf("signature: %s: %w", path, err)
	}
	return key, nil
}

// LoadCertificates reads all certificates of a PEM file, at least one.
func LoadCertificates(path string) ([]*x509.Certificate, error) {
	blocks, err := readPEM(path)
	if err != nil {
		return nil, err
	}
	var certs []*x509.Certificate
	for _, block := range blocks {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("signature: %s: %w", path, err)
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, fmt.Errorf("signature: %s: no certificate", path)
	}
	return certs, nil
}

// readPEM reads a file that consists of PEM blocks and text between them.
func readPEM(path string) ([]*pem.Block, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("signature: %w", err)
	}
	var blocks []*pem.Block
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			break
		}
		blocks, data = append(blocks, block), rest
	}
	if len(blocks) == 0 {
		return nil, errors.New("signature: " + path + ": not a PEM file")
	}
	return blocks, nil
}
