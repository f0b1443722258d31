package core

import (
	"fmt"
	"strings"

	"github.com/cabine-pix/cabine/libs/iso20022"
)

// MessagesConfig says in which versions messages are read and written. Every service that reads or writes them has the same.
type MessagesConfig struct {
	// Versions are "pacs.008=1.16", a type up to twice, in place of the catalogue's for that type: both are read, the first
	// is written. Optional.
	Versions []string `koanf:"versions" help:"versões das mensagens, ex.: pacs.008=1.16,pacs.008=1.15: as duas são lidas, a primeira é escrita; vazio: catálogo 5.13"`
}

// Known returns the versions of every type.
func (c MessagesConfig) Known() (iso20022.Versions, error) {
	all, told := iso20022.DefaultVersions(), iso20022.Versions{}
	for _, pair := range c.Versions {
		msgType, version, ok := strings.Cut(pair, "=")
		if !ok {
			return all, fmt.Errorf("messages.versions: %q is no type=version", pair)
		}
		told[msgType] = append(told[msgType], version)
	}
	for msgType, versions := range told {
		all[msgType] = versions
	}
	if err := all.Validate(); err != nil {
		return all, fmt.Errorf("messages.versions: %w", err)
	}
	return all, nil
}
