package bacen

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/transport"
)

// limits of one read.
func limits() icom.Limits {
	return icom.Limits{
		Messages:     transport.MaxMessages,
		MessageBytes: transport.MaxMessageBytes,
		BodyBytes:    transport.MaxBodyBytes,
	}
}

func notSent(err error) error {
	return &transport.Error{Kind: transport.NotSent, Reason: err.Error()}
}

// Pull implements transport.Transport.
func (t *Transport) Pull(ctx context.Context, in transport.PullRequest) (transport.PullResult, error) {
	if err := t.known(in.Permit.Slot); err != nil {
		return transport.PullResult{}, notSent(err)
	}
	requests := t.requests(in.Permit.Slot)
	req, err := requests.Pull(in.Cursor)
	if err != nil {
		return transport.PullResult{}, notSent(err)
	}
	a, x, err := t.call(ctx, in.Permit, in.Timeout, req)
	if err != nil {
		return transport.PullResult{}, err
	}
	r := transport.PullResult{Exchange: x, Took: t.clk.Now().Boot.Sub(x.FirstByte)}
	switch a.status {
	case http.StatusOK, http.StatusNoContent:
	case http.StatusNotFound, http.StatusGone:
		return transport.PullResult{}, refused(transport.Gone, x, a)
	default:
		return transport.PullResult{}, unexpected(x, a)
	}
	if r.Cursor, err = requests.Cursor(req, a.header); err != nil {
		return transport.PullResult{}, malformed(x, a, err)
	}
	if a.status == http.StatusNoContent {
		return r, nil
	}
	messages, err := icom.ReadMessages(a.header, bytes.NewReader(a.body), limits())
	if err != nil {
		return transport.PullResult{}, malformed(x, a, err)
	}
	for _, m := range messages {
		r.Messages = append(r.Messages, transport.Message(m))
	}
	return r, nil
}

// Send implements transport.Transport.
func (t *Transport) Send(ctx context.Context, in transport.SendRequest) (transport.SendResult, error) {
	if err := t.known(in.Permit.Slot); err != nil {
		return transport.SendResult{}, notSent(err)
	}
	req, err := t.requests(in.Permit.Slot).Send(in.Messages)
	if err != nil {
		return transport.SendResult{}, notSent(err)
	}
	a, x, err := t.call(ctx, in.Permit, in.Timeout, req)
	if err != nil {
		return transport.SendResult{}, err
	}
	if a.status != http.StatusCreated {
		return transport.SendResult{}, unexpected(x, a)
	}
	return transport.SendResult{Exchange: x, ResourceIDs: icom.ReceiptIDs(a.header)}, nil
}

// CloseStream implements transport.Transport.
func (t *Transport) CloseStream(ctx context.Context, in transport.CloseRequest) (transport.CloseResult, error) {
	if err := t.known(in.Permit.Slot); err != nil {
		return transport.CloseResult{}, notSent(err)
	}
	req, err := t.requests(in.Permit.Slot).Close(in.Cursor)
	if err != nil {
		return transport.CloseResult{}, notSent(err)
	}
	a, x, err := t.call(ctx, in.Permit, in.Timeout, req)
	if err != nil {
		return transport.CloseResult{}, err
	}
	switch a.status {
	case http.StatusOK, http.StatusNoContent, http.StatusNotFound, http.StatusGone:
		return transport.CloseResult{Exchange: x}, nil
	default:
		return transport.CloseResult{}, unexpected(x, a)
	}
}

// unexpected names a complete answer that is not the one hoped for.
func unexpected(x transport.Exchange, a answer) error {
	switch {
	case a.status == http.StatusTooManyRequests:
		return refused(transport.Throttled, x, a)
	case a.status >= 400 && a.status < 500:
		return refused(transport.Rejected, x, a)
	case a.status >= 500 && a.status < 600:
		return refused(transport.Unavailable, x, a)
	default:
		return malformed(x, a, fmt.Errorf("status %d is not an answer to this request", a.status))
	}
}

func refused(kind transport.Kind, x transport.Exchange, a answer) error {
	p := icom.ReadProblem(a.header, bytes.NewReader(a.body))
	return &transport.Error{
		Kind: kind, Exchange: x, Status: a.status,
		ProblemType: p.Type, Title: p.Title, RetryAfter: icom.RetryAfter(a.header),
	}
}

func malformed(x transport.Exchange, a answer, err error) error {
	return &transport.Error{Kind: transport.Malformed, Exchange: x, Status: a.status, Reason: err.Error()}
}
