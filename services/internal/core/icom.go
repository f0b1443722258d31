package core

import (
	"errors"
	"fmt"

	"github.com/cabine-pix/cabine/libs/lease"
	"github.com/cabine-pix/cabine/libs/pix"
)

// derived says that a number follows from the others.
const derived = -1

// ICOMConfig says as whom and how often at once the bank is asked.
type ICOMConfig struct {
	// ISPB of the participant. Required.
	ISPB string `koanf:"ispb" env:"ICOM_ISPB" help:"ISPB do participante"`
	// MaxSlots is m, the most slots per channel that may poll, where the channel says nothing else. Default 4.
	MaxSlots int `koanf:"max_slots" env:"ICOM_MAX_SLOTS" help:"máximo de slots de leitura por canal; o restante fica para envio"`
	// CPM and CSM are the two channels.
	CPM ChannelConfig `koanf:"cpm"`
	CSM ChannelConfig `koanf:"csm"`
}

// ChannelConfig describes one channel.
type ChannelConfig struct {
	// Enabled: the channel is used. Default true.
	Enabled bool `koanf:"enabled" help:"usa este canal"`
	// Limit is N, the most requests in progress at the bank, 1 to 6. Every replica of every
	// service that shares the channel has the same. Default 6, the bank's own limit.
	Limit int `koanf:"limit" help:"N, máximo de requisições simultâneas no banco (1 a 6)"`
	// MaxSlots is m for this channel. Default: that of ICOMConfig.
	MaxSlots int `koanf:"max_slots" env:"ICOM_%_MAX_SLOTS" help:"máximo de slots de leitura deste canal; -1: icom.max_slots"`
	// PollFloor slots are never taken by senders. Default: 4, or less where m or N leave less.
	PollFloor int `koanf:"poll_floor" help:"slots reservados à leitura; -1: calculado"`
	// SendFloor slots are never taken by pollers. Default: N - m.
	SendFloor int `koanf:"send_floor" help:"slots reservados ao envio; -1: N - max_slots"`
}

// DefaultICOM returns the owner's split: six slots per channel, four that poll and two that send.
func DefaultICOM() ICOMConfig {
	c := ChannelConfig{Enabled: true, Limit: lease.MaxSlots, MaxSlots: derived, PollFloor: derived, SendFloor: derived}
	return ICOMConfig{MaxSlots: 4, CPM: c, CSM: c}
}

// Channels returns the enabled channels, primary first.
func (c ICOMConfig) Channels() []pix.Channel {
	var out []pix.Channel
	for _, name := range pix.Channels() {
		if c.channel(name).Enabled {
			out = append(out, name)
		}
	}
	return out
}

func (c ICOMConfig) channel(name pix.Channel) ChannelConfig {
	ch := c.CSM
	if name == pix.CPM {
		ch = c.CPM
	}
	if ch.MaxSlots == derived {
		ch.MaxSlots = c.MaxSlots
	}
	if ch.SendFloor == derived {
		ch.SendFloor = ch.Limit - ch.MaxSlots
	}
	if ch.PollFloor == derived {
		ch.PollFloor = min(4, ch.MaxSlots)
		if ch.SendFloor == 0 { // senders exist and need a shared slot
			ch.PollFloor = min(ch.PollFloor, ch.Limit-1)
		}
	}
	return ch
}

// Set returns the set of permits of one channel: what every service that asks the bank
// there has in common, whichever class it is.
func (c ICOMConfig) Set(name pix.Channel) lease.SetConfig {
	ch := c.channel(name)
	return lease.SetConfig{
		Name:   fmt.Sprintf("sem:icom:{%s:%s}", name, c.ISPB),
		Slots:  ch.Limit,
		Floors: map[lease.Class]int{lease.Poll: ch.PollFloor, lease.Send: ch.SendFloor},
	}
}

// Pollers returns m, the most slots of a channel that may poll.
func (c ICOMConfig) Pollers(name pix.Channel) int { return c.channel(name).MaxSlots }

// Senders returns the most slots of a channel that may send: all but those that only pollers take.
func (c ICOMConfig) Senders(name pix.Channel) int {
	ch := c.channel(name)
	return ch.Limit - ch.PollFloor
}

// Validate names every value that does not fit.
func (c ICOMConfig) Validate() error {
	var errs []error
	if _, err := pix.ParseISPB(c.ISPB); err != nil {
		errs = append(errs, fmt.Errorf("icom.ispb: %w", err))
	}
	if len(c.Channels()) == 0 {
		errs = append(errs, errors.New("icom: no channel is enabled"))
	}
	for _, name := range c.Channels() {
		ch := c.channel(name)
		switch {
		case ch.Limit < 1 || ch.Limit > lease.MaxSlots:
			errs = append(errs, fmt.Errorf("icom.%s.limit is %d, want 1 to %d: BACEN accepts no more at once", name, ch.Limit, lease.MaxSlots))
		case ch.MaxSlots < 1 || ch.MaxSlots > ch.Limit:
			errs = append(errs, fmt.Errorf("icom.%s: max_slots is %d, want 1 to the limit %d", name, ch.MaxSlots, ch.Limit))
		case c.ISPB != "":
			if err := c.Set(name).Validate(); err != nil {
				errs = append(errs, fmt.Errorf("icom.%s: %w", name, err))
			}
		}
	}
	return errors.Join(errs...)
}
