package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cabine-pix/cabine/libs/bus"
	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/signature"
	"github.com/cabine-pix/cabine/libs/signature/pkcs11"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/libs/telemetry"
	"github.com/cabine-pix/cabine/libs/transport"
	"github.com/cabine-pix/cabine/services/internal/core"
	"github.com/cabine-pix/cabine/services/outbound-sender/outbound"
)

// newSigner returns what everything is signed with. A key in a token is given back when the service ends.
func newSigner(cfg Config, clk clock.Clock, r *core.Runner) (*signer, error) {
	certificates, err := signature.LoadCertificates(cfg.Signature.CertificateFile)
	if err != nil {
		return nil, core.Misconfigured(fmt.Errorf("signature.certificate_file: %w", err))
	}
	if len(certificates) != 1 {
		return nil, core.Misconfigured(fmt.Errorf("signature.certificate_file has %d certificates, want one", len(certificates)))
	}
	if cfg.Signature.PKCS11.Module == "" {
		key, err := signature.LoadKey(cfg.Signature.KeyFile)
		if err != nil {
			return nil, core.Misconfigured(fmt.Errorf("signature.key_file: %w", err))
		}
		return signerOf(key, certificates[0], clk)
	}
	key, err := pkcs11.Open(cfg.Signature.PKCS11.key())
	if err != nil {
		return nil, core.Misconfigured(fmt.Errorf("signature.pkcs11: %w", err))
	}
	r.Add(core.Part{Name: "token of the signature", Stage: core.Clients, Budget: 2 * time.Second, Close: func(context.Context) error {
		return key.Close()
	}})
	return signerOf(key, certificates[0], clk)
}

func newSender(
	cfg Config, pools core.ChannelPools, t transport.Transport, db *store.DB, b *bus.Bus, sig *signer,
	clk clock.Clock, log *slog.Logger, reg prometheus.Registerer,
) (*outbound.Sender, error) {
	versions, err := cfg.Messages.Known()
	if err != nil {
		return nil, core.Misconfigured(err)
	}
	slots := make(map[pix.Channel]outbound.Slots)
	for name, ch := range pools {
		slots[name] = ch.Pool
	}
	sender, err := outbound.New(cfg.outbound(), outbound.Deps{
		Slots: slots, Transport: readiness{t, sig}, Store: store.NewOutbound(db), Intake: intake(b, cfg.Send.InHand, log),
		Versions: versions, Signer: sig, Clock: clk, Log: log, Metrics: reg,
	})
	return sender, core.Misconfigured(err)
}

// intake is the bus as the sender sees it.
func intake(b *bus.Bus, inHand int, log *slog.Logger) outbound.Intake {
	return func(ctx context.Context, channel pix.Channel, take func(outbound.Delivery)) error {
		sub := b.Subscribe(bus.SubscriptionConfig{
			Stream: bus.StreamOutbound, Durable: bus.SenderConsumer(channel), MaxHeld: inHand,
		})
		var taking sync.WaitGroup
		taking.Go(func() {
			for held := range sub.Deliveries() {
				o, err := held.Outbound()
				if err != nil {
					log.Error("delivery names no operation", slog.String("subject", held.Subject), slog.Any("error", err))
					held.Drop("names no operation") // the row that it stands for is published again
					continue
				}
				take(outbound.Delivery{Outbound: o, Ack: held.Ack, Retry: held.Retry})
			}
		})
		err := sub.Run(ctx)
		taking.Wait()
		return err
	}
}

// show puts the sender's state where operators look.
func show(s *outbound.Sender, h *telemetry.Health) { h.AddReady("outbound", time.Second, s.Ready) }
