package spitest

import (
	"slices"
	"sync"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
)

// maxTouched is how many touched entries a File lists.
const maxTouched = 10_000

// Files is what the file host has and did. Its downloads are no requests of a channel: the bank's judge knows nothing of them.
type Files struct {
	// Made counts files, Refused questions for one that were refused. Dropped files were thrown away for others.
	Made    int `json:"made"`
	Refused int `json:"refused"`
	Dropped int `json:"dropped"`
	// Downloads counts files that were served whole; Cut and Broken those that a fault spoiled.
	Downloads int `json:"downloads"`
	Cut       int `json:"cut"`
	Broken    int `json:"broken"`
	// NotFound counts 404, Forbidden 403.
	NotFound  int `json:"not_found"`
	Forbidden int `json:"forbidden"`
	// Held are the files that may be fetched now, oldest first.
	Held []File `json:"held"`
}

// File is one file of entries.
type File struct {
	// Question is the MsgId of the camt.060 that asked last.
	Question pix.MsgID `json:"question"`
	ISPB     pix.ISPB  `json:"ispb"`
	// Hash as it was told, and the name. Falsified: it is not that of the content.
	Hash      string    `json:"hash"`
	Falsified bool      `json:"falsified,omitempty"`
	From      time.Time `json:"from"`
	To        time.Time `json:"to"`
	Bytes     int       `json:"bytes"`
	// Settled is how many entries there are in truth, Entries how many the file has.
	Settled int `json:"settled"`
	Entries int `json:"entries"`
	// Lost, Doubled, Altered and Invented count what fault rules did to entries.
	Lost     int `json:"lost"`
	Doubled  int `json:"doubled"`
	Altered  int `json:"altered"`
	Invented int `json:"invented"`
	// Touched lists the same, the first maxTouched of them.
	Touched []Touched `json:"touched,omitempty"`
	// Fetched counts requests for it.
	Fetched int `json:"fetched"`

	content []byte
}

// Touched is an entry that a fault rule struck.
type Touched struct {
	// ID is the entry's EndToEndId or RtrId; of an invented one, its own.
	ID string `json:"id"`
	Do Effect `json:"do"`
}

func (f *File) touch(id string, do Effect) {
	if len(f.Touched) < maxTouched {
		f.Touched = append(f.Touched, Touched{id, do})
	}
}

// shelf holds the files, bounded in number and bytes: the oldest go.
type shelf struct {
	maxFiles int
	maxBytes int

	mu    sync.Mutex
	held  []*File // oldest first
	bytes int
	count Files
}

// put adds a file, in place of the one of its name. It is not larger than maxBytes.
func (s *shelf) put(f *File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.Bytes = len(f.content)
	s.count.Made++
	if i := s.index(f.ISPB, f.Hash); i >= 0 {
		f.Fetched = s.held[i].Fetched
		s.remove(i)
	}
	s.held = append(s.held, f)
	s.bytes += f.Bytes
	for len(s.held) > s.maxFiles || s.bytes > s.maxBytes {
		s.remove(0)
		s.count.Dropped++
	}
}

func (s *shelf) index(ispb pix.ISPB, hash string) int {
	return slices.IndexFunc(s.held, func(f *File) bool { return f.ISPB == ispb && f.Hash == hash })
}

func (s *shelf) remove(i int) {
	s.bytes -= s.held[i].Bytes
	s.held = slices.Delete(s.held, i, i+1)
}

// fetch returns the content of a file, and which fetching of it this is.
func (s *shelf) fetch(ispb pix.ISPB, hash string) (content []byte, n int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.index(ispb, hash)
	if i < 0 {
		return nil, 0, false
	}
	s.held[i].Fetched++
	return s.held[i].content, s.held[i].Fetched, true
}

// tally changes the counters.
func (s *shelf) tally(change func(*Files)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.count)
}

func (s *shelf) report() Files {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.count
	r.Held = make([]File, len(s.held))
	for i, f := range s.held {
		r.Held[i] = *f
		r.Held[i].content = nil
	}
	return r
}
