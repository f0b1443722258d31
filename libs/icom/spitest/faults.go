package spitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"time"
)

// Place is where on an operation's way a fault strikes.
type Place string

// The places.
const (
	// AtForward: an order on its way to the credited participant.
	AtForward Place = "forward"
	// AtStatus: ACSC, ACCC or RJCT on its way to either participant.
	AtStatus Place = "status"
	// AtAnswer: what the credited participant answered, before the SPI takes it.
	AtAnswer Place = "answer"
	// AtOrder: an order as it arrives.
	AtOrder Place = "order"
	// AtEntry: an entry on its way into a file of entries.
	AtEntry Place = "entry"
	// AtStatement: the camt.052 that says that a file is ready, known by the question's MsgId.
	AtStatement Place = "statement"
	// AtDownload: a file as it is fetched, each time anew.
	AtDownload Place = "download"
)

// Effect is what a fault does.
type Effect string

// The effects.
const (
	// Drop: it never arrives; of a download, its second half. Not at AtOrder.
	Drop Effect = "drop"
	// Repeat: it arrives once more, Delay after the first time. AtForward, AtStatus, and AtEntry, where it stands twice
	// in a row.
	Repeat Effect = "repeat"
	// Delay: it arrives Delay later. Not at AtOrder and AtEntry.
	Delay Effect = "delay"
	// Late: it arrives when the order's limit has passed, after AB03 was told. AtAnswer.
	Late Effect = "late"
	// Refuse: the whole message in which the operation stands is answered with admi.002,
	// every time it comes, so that a sender who takes the message apart loses only this one. AtOrder.
	Refuse Effect = "refuse"
	// Alter: its amount is another by a centavo. AtEntry.
	Alter Effect = "alter"
	// Invent: behind it stands another one, of an order that there never was. AtEntry.
	Invent Effect = "invent"
	// Falsify: the hash that is told is not that of the file, which is to be had under it. AtStatement.
	Falsify Effect = "falsify"
	// Cut: the file that is served ends in its middle, and its length says so. AtDownload.
	Cut Effect = "cut"
)

// Fault is one rule of misbehaviour.
type Fault struct {
	At Place
	Do Effect
	// Rate is the share of operations, above 0 to 1. Which ones follows from the seed and
	// the operation's identifier alone: one operation has one fate under a rule.
	Rate float64
	// Delay goes with Delay and Repeat.
	Delay time.Duration
}

func (f Fault) validate() error {
	var places []Place
	switch f.Do {
	case Drop:
		places = []Place{AtForward, AtStatus, AtAnswer, AtEntry, AtStatement, AtDownload}
	case Delay:
		places = []Place{AtForward, AtStatus, AtAnswer, AtStatement, AtDownload}
	case Repeat:
		places = []Place{AtForward, AtStatus, AtEntry}
	case Late:
		places = []Place{AtAnswer}
	case Refuse:
		places = []Place{AtOrder}
	case Alter, Invent:
		places = []Place{AtEntry}
	case Falsify:
		places = []Place{AtStatement}
	case Cut:
		places = []Place{AtDownload}
	}
	if !slices.Contains(places, f.At) {
		return fmt.Errorf("spitest: fault %q at %q: no such thing", f.Do, f.At)
	}
	if f.Rate <= 0 || f.Rate > 1 || f.Delay < 0 || f.Do == Delay && f.Delay == 0 {
		return fmt.Errorf("spitest: fault %q at %q: rate %g outside 0..1 or delay %s makes no sense", f.Do, f.At, f.Rate, f.Delay)
	}
	return nil
}

// rules are validated faults with their seed. They never change.
type rules struct {
	seed   uint64
	faults []Fault
}

// strike returns the first rule that hits the operation at a place; whom tells apart the two who are told of one order.
func (r rules) strike(at Place, id, whom string) (Fault, bool) {
	for i, f := range r.faults {
		if f.At == at && chosen(r.seed, i, id, whom, f.Rate) {
			return f, true
		}
	}
	return Fault{}, false
}

func chosen(seed uint64, rule int, id, whom string, rate float64) bool {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d/%d/%s/%s", seed, rule, id, whom)
	x := h.Sum64()
	// FNV leaves its high bits close to each other for texts that are.
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return float64(x>>11)/(1<<53) < rate
}

// faultJSON is Fault with the delay as people write it.
type faultJSON struct {
	At    Place   `json:"at"`
	Do    Effect  `json:"do"`
	Rate  float64 `json:"rate"`
	Delay string  `json:"delay,omitempty"`
}

// MarshalJSON writes {"at":"status","do":"repeat","rate":0.1,"delay":"250ms"}.
func (f Fault) MarshalJSON() ([]byte, error) {
	j := faultJSON{At: f.At, Do: f.Do, Rate: f.Rate}
	if f.Delay != 0 {
		j.Delay = f.Delay.String()
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON writes and refuses unknown fields.
func (f *Fault) UnmarshalJSON(text []byte) error {
	var j faultJSON
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&j); err != nil {
		return err
	}
	*f = Fault{At: j.At, Do: j.Do, Rate: j.Rate}
	if j.Delay == "" {
		return nil
	}
	var err error
	f.Delay, err = time.ParseDuration(j.Delay)
	return err
}
