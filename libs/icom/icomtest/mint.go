package icomtest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/pix"
)

const (
	// payer is the participant that pays in the examples: the SPI's virtual one that pays to everybody.
	payer = "99999A03"
	alnum = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	// maxExample bounds an example file. The largest official one has 28 KB.
	maxExample = 1 << 20
)

// slot is a place in a template where every message has its own text.
type slot int

const (
	slotNone slot = iota
	slotMsgID
	slotCreated   // time of the message
	slotAccepted  // time at which the payer accepted, a little earlier
	slotDate      // accounting date
	slotEndToEnd  // of the next transaction
	slotSameEndTo // of the same transaction
	slotRecipient // ISPB
	slotPayer     // ISPB
	slotAmount    // reais with two decimals
)

// piece is fixed text and the slot behind it.
type piece struct {
	text []byte
	slot slot
}

// template is a message cut into pieces once, so that making one is copying.
type template struct {
	name   string
	pieces []piece
	size   int
	status bool // about the recipient's own payment, whose identifier it carries
}

// mint makes fresh messages out of templates.
type mint struct {
	clock     clock.Clock
	templates []template

	mu     sync.Mutex
	random *rand.ChaCha8
	next   int
}

// newMint reads the official examples of the SPI's own messages, or takes the look-alikes.
func newMint(cfg Config) (*mint, error) {
	m := &mint{clock: cfg.Clock, random: seeded(cfg.Seed, 0)}
	files, err := readExamples(cfg.Examples)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		files = lookAlikes()
	}
	for _, f := range files {
		m.templates = append(m.templates, compile(f.name, f.text))
	}
	return m, nil
}

type example struct {
	name string
	text []byte
}

// readExamples reads what the SPI sends: pacs.008 and those pacs.002 that do not come from a participant.
func readExamples(dir string) ([]example, error) {
	if dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("icomtest: examples: %w", err)
	}
	var out []example
	for _, e := range entries {
		name, isXML := strings.CutSuffix(e.Name(), ".xml")
		ours := strings.HasPrefix(name, "pacs.008") || strings.HasPrefix(name, "pacs.002") && !strings.Contains(name, "PSP")
		if !isXML || !ours {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("icomtest: examples: %w", err)
		}
		if len(text) > maxExample {
			return nil, fmt.Errorf("icomtest: example %s is longer than %d bytes", e.Name(), maxExample)
		}
		out = append(out, example{name, text})
	}
	return out, nil
}

// compile cuts a message at the values that must be fresh. It looks at tags as text,
// which is enough for files that the bank itself chose.
func compile(name string, text []byte) template {
	t := template{name: name, size: len(text) + 64, status: strings.HasPrefix(name, "pacs.002")}
	inside := "" // the last of the tags that tell whose Id follows
	own := false // an OrgnlInstrId came before this OrgnlEndToEndId
	for {
		open := bytes.IndexByte(text, '<')
		end := bytes.IndexByte(text[max(open, 0):], '>')
		if open < 0 || end < 0 {
			break
		}
		end += open + 1
		tag, _, _ := strings.Cut(string(text[open+1:end-1]), " ")
		var s slot
		switch tag {
		case "Fr", "To", "DbtrAgt", "CdtrAgt", "Document":
			inside = tag
		case "OrgnlEndToEndId":
			s = slotEndToEnd
			if own {
				s = slotSameEndTo
			}
		case "OrgnlInstrId":
			own = true
			s = slotEndToEnd
		default:
			s = slotOf(tag, inside)
		}
		t.pieces = append(t.pieces, piece{text: text[:end], slot: s})
		text = text[end:]
		if s != slotNone {
			text = text[max(bytes.IndexByte(text, '<'), 0):]
		}
	}
	t.pieces = append(t.pieces, piece{text: text})
	t.merge()
	return t
}

func slotOf(tag, inside string) slot {
	switch tag {
	case "BizMsgIdr", "MsgId":
		return slotMsgID
	case "CreDt", "CreDtTm", "DtTm":
		return slotCreated
	case "AccptncDtTm":
		return slotAccepted
	case "IntrBkSttlmDt":
		return slotDate
	case "EndToEndId":
		return slotEndToEnd
	case "IntrBkSttlmAmt":
		return slotAmount
	case "Id":
		if inside == "To" {
			return slotRecipient
		}
	case "MmbId":
		if inside == "CdtrAgt" {
			return slotRecipient
		}
		return slotPayer
	}
	return slotNone
}

// merge joins pieces that have no slot between them.
func (t *template) merge() {
	var out []piece
	var text []byte
	for _, p := range t.pieces {
		text = append(text, p.text...)
		if p.slot != slotNone {
			out = append(out, piece{text, p.slot})
			text = nil
		}
	}
	t.pieces = append(out, piece{text: text})
}

// choose returns the templates that are of one of the kinds, all for no kinds.
func (m *mint) choose(kinds []string) ([]template, error) {
	if len(kinds) == 0 {
		return m.templates, nil
	}
	chosen := slices.DeleteFunc(slices.Clone(m.templates), func(t template) bool {
		return !slices.ContainsFunc(kinds, func(k string) bool { return t.name == k || strings.HasPrefix(t.name, k+"_") })
	})
	if len(chosen) == 0 {
		return nil, fmt.Errorf("icomtest: no example of %v", kinds)
	}
	return chosen, nil
}

// make returns n messages for a participant, from the templates of the kinds in turn.
func (m *mint) make(ispb pix.ISPB, n int, kinds []string) ([][]byte, error) {
	chosen, err := m.choose(kinds)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock.Now().Wall.UTC()
	out := make([][]byte, n)
	for i := range out {
		out[i] = m.one(&chosen[m.next%len(chosen)], ispb, now)
		m.next++
	}
	return out, nil
}

// one makes a message. Identifiers look like the SPI's own: MsgId is M, its ISPB, the
// milliseconds in base 36 and 14 random characters.
func (m *mint) one(t *template, ispb pix.ISPB, now time.Time) []byte {
	const millis = "2006-01-02T15:04:05.000Z"
	var msgID, endToEnd [32]byte
	m.msgID(msgID[:], now)
	from := payer
	if t.status {
		from = string(ispb)
	}
	out := make([]byte, 0, t.size+len(t.pieces))
	for _, p := range t.pieces {
		out = append(out, p.text...)
		switch p.slot {
		case slotNone:
		case slotMsgID:
			out = append(out, msgID[:]...)
		case slotCreated:
			out = now.AppendFormat(out, millis)
		case slotAccepted:
			out = now.Add(-250*time.Millisecond).AppendFormat(out, millis)
		case slotDate:
			out = now.AppendFormat(out, time.DateOnly)
		case slotEndToEnd:
			m.endToEnd(endToEnd[:], from, now)
			out = append(out, endToEnd[:]...)
		case slotSameEndTo:
			out = append(out, endToEnd[:]...)
		case slotRecipient:
			out = append(out, ispb...)
		case slotPayer:
			out = append(out, payer...)
		case slotAmount:
			cents := m.random.Uint64()%99_900 + 100
			out = strconv.AppendUint(out, cents/100, 10)
			out = append(out, '.', byte('0'+cents/10%10), byte('0'+cents%10))
		}
	}
	return out
}

func (m *mint) msgID(dst []byte, now time.Time) {
	dst = dst[copy(dst, "M"+string(pix.SPI)):]
	ms := now.UnixMilli()
	for i := 8; i >= 0; i-- {
		dst[i] = alnum[ms%36]
		ms /= 36
	}
	m.letters(dst[9:])
}

func (m *mint) endToEnd(dst []byte, ispb string, now time.Time) {
	dst[0] = 'E'
	copy(dst[1:], ispb)
	now.AppendFormat(dst[9:9], "200601021504")
	m.letters(dst[21:])
}

func (m *mint) letters(dst []byte) {
	for len(dst) > 0 {
		// Twelve base 36 digits come out of one number; its bias is of no interest here.
		x := m.random.Uint64()
		for range min(12, len(dst)) {
			dst[0] = alnum[x%36]
			x /= 36
			dst = dst[1:]
		}
	}
}
