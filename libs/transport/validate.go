package transport

import (
	"errors"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
)

// Validate reports what is malformed in a permit. It says nothing about its time.
func (p Permit) Validate() error {
	if _, err := pix.ParseChannel(string(p.Slot.Channel)); err != nil {
		return err
	}
	if _, err := pix.ParseISPB(string(p.Slot.ISPB)); err != nil {
		return err
	}
	if p.Slot.Slot < 1 {
		return fmt.Errorf("slot %d: slots count from 1", p.Slot.Slot)
	}
	if p.Grant == "" {
		return errors.New("permit without a grant")
	}
	return nil
}

// Validate reports what is malformed in the request.
func (r PullRequest) Validate() error {
	return errors.Join(r.Permit.Validate(), validateCursor(r.Cursor), validateTimeout(r.Timeout))
}

// Validate reports what is malformed in the request.
func (r SendRequest) Validate() error {
	return errors.Join(r.Permit.Validate(), validateTimeout(r.Timeout), r.validateMessages())
}

func (r SendRequest) validateMessages() error {
	if n := len(r.Messages); n < 1 || n > MaxMessages {
		return fmt.Errorf("%d messages, want 1 to %d", n, MaxMessages)
	}
	for i, m := range r.Messages {
		if len(m) == 0 || len(m) > MaxMessageBytes {
			return fmt.Errorf("message %d has %d bytes, want 1 to %d", i, len(m), MaxMessageBytes)
		}
	}
	return nil
}

// Validate reports what is malformed in the request.
func (r CloseRequest) Validate() error {
	if r.Cursor == "" {
		return errors.New("no cursor: there is no stream to close")
	}
	return errors.Join(r.Permit.Validate(), validateCursor(r.Cursor), validateTimeout(r.Timeout))
}

// Validate reports the first limit that the result breaks. A result comes from another
// process and, through it, from the network.
func (r PullResult) Validate() error {
	if len(r.Messages) > MaxMessages {
		return fmt.Errorf("%d messages, want at most %d", len(r.Messages), MaxMessages)
	}
	total := 0
	for i, m := range r.Messages {
		if len(m.Body) > MaxMessageBytes {
			return fmt.Errorf("message %d has %d bytes, want at most %d", i, len(m.Body), MaxMessageBytes)
		}
		if err := validateResourceID(m.ResourceID); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		total += len(m.Body)
	}
	if total > MaxBodyBytes {
		return fmt.Errorf("%d bytes of messages, want at most %d", total, MaxBodyBytes)
	}
	if r.Took < 0 {
		return fmt.Errorf("took %v", r.Took)
	}
	return validateCursor(r.Cursor)
}

// Validate reports the first limit that the receipt for n messages breaks. The bank
// stored the messages whatever its list of identifiers looks like, so a list of
// another length is not an error.
func (r SendResult) Validate() error {
	if len(r.ResourceIDs) > MaxMessages {
		return fmt.Errorf("%d resource identifiers, want at most %d", len(r.ResourceIDs), MaxMessages)
	}
	for i, id := range r.ResourceIDs {
		if err := validateResourceID(id); err != nil {
			return fmt.Errorf("resource identifier %d: %w", i, err)
		}
	}
	return nil
}

func validateTimeout(d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("timeout %v, want more than zero", d)
	}
	return nil
}

func validateCursor(s string) error {
	if len(s) > MaxCursorBytes {
		return fmt.Errorf("cursor has %d bytes, want at most %d", len(s), MaxCursorBytes)
	}
	if i := firstInvisible(s); i >= 0 {
		return fmt.Errorf("cursor has the byte %#x at %d, want visible ASCII", s[i], i)
	}
	return nil
}

func validateResourceID(s string) error {
	if len(s) > MaxResourceIDBytes {
		return fmt.Errorf("resource identifier has %d bytes, want at most %d", len(s), MaxResourceIDBytes)
	}
	if i := firstInvisible(s); i >= 0 {
		return fmt.Errorf("resource identifier has the byte %#x at %d, want visible ASCII", s[i], i)
	}
	return nil
}

// firstInvisible returns the index of the first byte that is not visible ASCII, which
// in a header value could end the line or the field; -1 if there is none.
func firstInvisible(s string) int {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return i
		}
	}
	return -1
}
