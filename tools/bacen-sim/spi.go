package main

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/icom/spitest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/signature"
	"github.com/cabine-pix/cabine/libs/signature/signaturetest"
)

// identityValidity is how long the certificates of signatures are in force.
const identityValidity = 365 * 24 * time.Hour

// signatureFiles are the PEM files of one signer.
type signatureFiles struct {
	Key         string `json:"key"`
	Certificate string `json:"certificate"`
}

// participantFile is one entry of --participants.
type participantFile struct {
	ISPB    pix.ISPB `json:"ispb"`
	Balance string   `json:"balance"` // "1000.00"
	Virtual bool     `json:"virtual"`
	Closed  bool     `json:"closed"`
	// Certificate is a PEM file with which the participant signs. Without it a key is made for it.
	Certificate string `json:"certificate"`
}

// defineSPI adds the flags of the SPI behind the bank.
func (opt *options) defineSPI(fs *flag.FlagSet) {
	c := &opt.spi
	fs.Func("participant", "ISPB=balance, as 12345678=1000000.00, optionally with ,virtual or ,closed: "+
		"opens a PI account and switches the SPI on; repeatable", func(s string) error {
		p, err := parseParticipant(s)
		opt.members = append(opt.members, p)
		return err
	})
	fs.Func("participants", "JSON file with a list of participants: ispb, balance, virtual, closed, certificate", opt.readParticipants)
	fs.Func("spi-faults", "JSON file with a list of the SPI's fault rules: at, do, rate, delay", func(path string) error {
		return readJSON(path, &c.Faults)
	})
	fs.DurationVar(&c.SettleWithin, "settle-within", 40*time.Second, "time from AccptncDtTm to AB03")
	fs.DurationVar(&c.ScheduledWithin, "scheduled-within", 45*time.Minute, "the same for scheduled payments (PAGAGD)")
	fs.DurationVar(&c.OrderWithin, "order-within", 0, "time from AccptncDtTm after which an order is refused, AB11; 0: 34/40 of --settle-within")
	fs.DurationVar(&c.Linger, "spi-linger", 0, "how long the SPI waits for more before it writes a message")
	fs.IntVar(&c.Workers, "spi-workers", 2, "goroutines of the SPI that read, and as many that write")
	fs.BoolVar(&c.WrapSignatures, "wrap-signatures", false, "break signatures into lines as the real SPI does")
	fs.BoolVar(&c.RefuseRepeats, "refuse-repeats", false, "answer DUPL to the very same order again")
	fs.BoolVar(&c.RefByMsgID, "ref-by-msg-id", false, "name refused messages by MsgId instead of PI-ResourceId")
}

func parseParticipant(s string) (participantFile, error) {
	ispb, rest, ok := strings.Cut(s, "=")
	if !ok {
		return participantFile{}, errors.New("want ISPB=balance")
	}
	balance, flags, _ := strings.Cut(rest, ",")
	p := participantFile{ISPB: pix.ISPB(ispb), Balance: balance, Virtual: flags == "virtual", Closed: flags == "closed"}
	if flags != "" && !p.Virtual && !p.Closed {
		return p, fmt.Errorf("%q: want virtual or closed", flags)
	}
	return p, p.validate()
}

func (p participantFile) validate() error {
	_, errISPB := pix.ParseISPB(string(p.ISPB))
	_, errBalance := pix.ParseAmount(p.Balance)
	return errors.Join(errISPB, errBalance)
}

func (opt *options) readParticipants(path string) error {
	var members []participantFile
	if err := readJSON(path, &members); err != nil {
		return err
	}
	for _, p := range members {
		if err := p.validate(); err != nil {
			return err
		}
	}
	opt.members = append(opt.members, members...)
	return nil
}

func readJSON(path string, v any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// openSPI makes the SPI of the flags, and tells its files in line. It makes keys in the --pki-dir for those who have none.
func (opt *options) openSPI(line *ready) (*spitest.SPI, error) {
	cfg := opt.spi
	cfg.Seed = opt.bank.Seed
	files, cert, err := identity(opt.pkiDir, pix.SPI)
	if err != nil {
		return nil, err
	}
	key, err := signature.LoadKey(files.Key)
	if err != nil {
		return nil, err
	}
	if cfg.Signer, err = signature.FromCertificate(key, cert); err != nil {
		return nil, err
	}
	line.SPI, line.Signatures = files.Certificate, make(map[pix.ISPB]signatureFiles)
	for _, m := range opt.members {
		p := spitest.Participant{ISPB: m.ISPB, Virtual: m.Virtual, Closed: m.Closed}
		if p.Balance, err = pix.ParseAmount(m.Balance); err != nil {
			return nil, err
		}
		switch {
		case m.Certificate != "":
			if p.Certificates, err = signature.LoadCertificates(m.Certificate); err != nil {
				return nil, err
			}
			line.Signatures[m.ISPB] = signatureFiles{Certificate: m.Certificate}
		case !m.Virtual:
			files, cert, err := identity(opt.pkiDir, m.ISPB)
			if err != nil {
				return nil, err
			}
			p.Certificates, line.Signatures[m.ISPB] = []*x509.Certificate{cert}, files
		}
		cfg.Participants = append(cfg.Participants, p)
	}
	return spitest.New(cfg)
}

// identity reads the key and certificate of a signer out of a directory of its own, or makes them there.
func identity(pkiDir string, ispb pix.ISPB) (signatureFiles, *x509.Certificate, error) {
	dir := filepath.Join(pkiDir, "signature", string(ispb))
	files := signatureFiles{
		Key: filepath.Join(dir, signaturetest.KeyFile), Certificate: filepath.Join(dir, signaturetest.CertificateFile),
	}
	if _, err := os.Stat(files.Certificate); errors.Is(err, fs.ErrNotExist) {
		made, err := signaturetest.New(string(ispb), time.Now().Add(-time.Hour), time.Now().Add(identityValidity))
		if err != nil {
			return files, nil, err
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return files, nil, err
		}
		_, _, err = made.Write(dir)
		return files, made.Certificate, err
	}
	certs, err := signature.LoadCertificates(files.Certificate)
	if err != nil {
		return files, nil, err
	}
	return files, certs[0], nil
}

// behind puts the SPI behind the bank that cfg describes.
func behind(cfg icomtest.Config, spi *spitest.SPI) icomtest.Config {
	cfg.OnReceive, cfg.Control = spi.Receive, spi.Control()
	return cfg
}
