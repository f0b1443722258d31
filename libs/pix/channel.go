package pix

import "fmt"

// Channel is one of the two message channels of the SPI's ICOM interface. BACEN
// limits simultaneous requests per channel and per ISPB, so a channel is part of
// the name of everything that is counted.
type Channel string

// The two channels, by the names the field uses.
const (
	// CPM, the primary channel, carries what is expected to settle at once and all returns.
	CPM Channel = "cpm"
	// CSM, the secondary channel, carries scheduled payments and large batches.
	CSM Channel = "csm"
)

// Channels lists both channels, primary first.
func Channels() []Channel { return []Channel{CPM, CSM} }

// ParseChannel reads "cpm" or "csm" and refuses everything else.
func ParseChannel(s string) (Channel, error) {
	switch c := Channel(s); c {
	case CPM, CSM:
		return c, nil
	default:
		return "", fmt.Errorf("channel %q: want %q or %q", s, CPM, CSM)
	}
}
