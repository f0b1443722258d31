package signature

import (
	"crypto/sha256"
	"fmt"

	"github.com/beevik/etree"
	dsig "github.com/russellhaering/goxmldsig"
)

// octets returns the canonical form of a fragment. declaration is that of the namespace it inherits, which is always
// used in it and so always part of the form; it stands before the attributes.
func (f fragment) octets(data []byte, declaration string) ([]byte, *Error) {
	written := f.written(data, declaration)
	if f.canonical {
		return written, nil
	}
	canonical, err := exclusive(written)
	if err != nil {
		return nil, refuse(Malformed, "cannot be canonicalised between bytes %d and %d", f.from, f.to)
	}
	return canonical, nil
}

// digest is that of the canonical form.
func (f fragment) digest(data []byte, declaration string) ([sha256.Size]byte, *Error) {
	octets, err := f.octets(data, declaration)
	if err != nil {
		return [sha256.Size]byte{}, err
	}
	return sha256.Sum256(octets), nil
}

// written returns a fragment as a document of its own.
func (f fragment) written(data []byte, declaration string) []byte {
	out := make([]byte, 0, f.to-f.from+len(declaration))
	out = append(append(out, data[f.from:f.name]...), declaration...)
	if f.hole.empty() {
		return append(out, data[f.name:f.to]...)
	}
	return append(append(out, data[f.name:f.hole.from]...), data[f.hole.to:f.to]...)
}

// exclusive canonicalises a document with the general library.
func exclusive(document []byte) ([]byte, error) {
	tree := etree.NewDocument()
	if err := tree.ReadFromBytes(document); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	octets, err := dsig.MakeC14N10ExclusiveCanonicalizerWithPrefixList("").Canonicalize(tree.Root())
	if err != nil {
		return nil, fmt.Errorf("canonicalise: %w", err)
	}
	return octets, nil
}
