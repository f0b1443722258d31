package spitest

import (
	"context"
	"net"

	"github.com/cabine-pix/cabine/libs/icom/icomtest"
)

// TB is the part of testing.TB that Start needs.
type TB interface {
	icomtest.TB
	Context() context.Context
}

// Start makes an SPI behind a bank, and its file host, on loopback ports and stops them with the test. Broken books fail the test.
// OnReceive of the bank belongs to the SPI.
func Start(tb TB, bankCfg icomtest.Config, cfg Config) (*icomtest.Bank, *SPI) {
	tb.Helper()
	spi, err := New(cfg)
	if err != nil {
		tb.Fatalf("%v", err)
		return nil, nil
	}
	bankCfg.OnReceive = spi.Receive
	bank := icomtest.Start(tb, bankCfg)
	files, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("%v", err)
		return nil, nil
	}
	spi.listening(files)
	// Other clean-ups still send: the SPI outlives the test's context as the bank does.
	ctx, stop := context.WithCancel(context.WithoutCancel(tb.Context()))
	ended := make(chan error, 2)
	go func() { ended <- spi.Run(ctx, bank) }()
	go func() { ended <- spi.ServeFiles(ctx, files, bank.PKI()) }()
	tb.Logf("spitest: seed %d", spi.cfg.Seed)
	tb.Cleanup(func() {
		stop()
		for range cap(ended) {
			if err := <-ended; err != nil {
				tb.Errorf("%v", err)
			}
		}
		for _, broken := range spi.Books(false).Broken {
			tb.Errorf("spitest: books: %s", broken)
		}
	})
	return bank, spi
}
