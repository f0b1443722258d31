package icom

import (
	"math"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
)

// Profile is a token bucket's size and refill.
type Profile struct {
	// Size is the most tokens that gather.
	Size float64
	// PerSecond is how many come back each second.
	PerSecond float64
}

// Profiles of the manual (2.2.1.5), per participant and channel.
func profilePrimary() Profile           { return Profile{Size: 3750, PerSecond: 750} }
func profileSecondaryDay() Profile      { return Profile{Size: 350, PerSecond: 35} }
func profileSecondaryNight() Profile    { return Profile{Size: 5000, PerSecond: 350} }
func profileSecondaryTracking() Profile { return Profile{Size: 1500, PerSecond: 500} }

// Cost returns how many tokens a message with that many operations costs: one for each
// operation of a pacs.008 or trck.002, a fifth for each of a pacs.002, one for any
// other message. msgType is "pacs.008" or longer ("pacs.008.spi.1.16").
func Cost(msgType string, operations int) float64 {
	operations = max(operations, 1)
	switch family(msgType) {
	case "pacs.008", "trck.002":
		return float64(operations)
	case "pacs.002":
		return float64(operations) / 5
	default:
		return 1
	}
}

func family(msgType string) string { return msgType[:min(len(msgType), len("pacs.008"))] }

// Traffic is the set of token buckets that the bank keeps for one participant on one
// channel. Requests are let in while their bucket has anything left and debited when
// they are processed, so that a bucket can go below zero. It is a value of arithmetic:
// the caller passes the time and serialises the calls.
type Traffic struct {
	channel  pix.Channel
	general  bucket
	tracking bucket
}

// NewTraffic returns full buckets.
func NewTraffic(channel pix.Channel, now time.Time) *Traffic {
	t := &Traffic{channel: channel}
	t.general = newBucket(t.profile(now), now)
	t.tracking = newBucket(profileSecondaryTracking(), now)
	return t
}

// Wait returns how long a message of this type must wait to be let in, zero for not at all.
func (t *Traffic) Wait(now time.Time, msgType string) time.Duration {
	return t.bucket(now, msgType).wait()
}

// Debit takes the cost out of the bucket that serves the type.
func (t *Traffic) Debit(now time.Time, msgType string, cost float64) {
	t.bucket(now, msgType).tokens -= cost
}

// Tokens returns what is left for the type, below zero when it was overdrawn.
func (t *Traffic) Tokens(now time.Time, msgType string) float64 {
	return t.bucket(now, msgType).tokens
}

func (t *Traffic) bucket(now time.Time, msgType string) *bucket {
	if t.channel == pix.CSM && family(msgType) == "trck.002" {
		t.tracking.refill(now)
		return &t.tracking
	}
	// The profile of the secondary channel changes at 08:00 and at midnight. What was
	// gathered before counts with the profile at its time only up to one call, which is
	// exact as long as somebody asks now and then.
	t.general.refill(now)
	t.general.use(t.profile(now))
	return &t.general
}

func (t *Traffic) profile(now time.Time) Profile {
	if t.channel == pix.CPM {
		return profilePrimary()
	}
	// The SPI's day is Brasília's, which keeps no summer time since 2019.
	if now.UTC().Add(-3*time.Hour).Hour() < 8 {
		return profileSecondaryNight()
	}
	return profileSecondaryDay()
}

type bucket struct {
	Profile
	tokens float64
	at     time.Time
}

func newBucket(p Profile, now time.Time) bucket { return bucket{Profile: p, tokens: p.Size, at: now} }

// refill adds what came back since the last call. A clock that stepped back adds nothing, and counts from there.
func (b *bucket) refill(now time.Time) {
	if passed := now.Sub(b.at); passed > 0 {
		b.tokens = min(b.Size, b.tokens+passed.Seconds()*b.PerSecond)
	}
	b.at = now
}

func (b *bucket) use(p Profile) {
	b.Profile = p
	b.tokens = min(b.tokens, p.Size)
}

func (b *bucket) wait() time.Duration {
	if b.tokens > 0 {
		return 0
	}
	// One microsecond more than it takes to stand at zero: the bucket must hold something.
	return time.Duration(math.Ceil(-b.tokens/b.PerSecond*1e6))*time.Microsecond + time.Microsecond
}
