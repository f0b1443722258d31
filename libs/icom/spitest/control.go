package spitest

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
)

const (
	maxControlBody = 1 << 20
	maxPayments    = 1_000_000
)

// Control answers an operator, as icomtest.Config.Control:
//
//	GET  /books?orders=1                            Report, with every order if asked
//	POST /participants                              {"ispb":"12345678","balance":100000,"certificates":"<PEM>"}
//	POST /pay?channel=&from=&to=&amount=12.34&n=    payments by a virtual participant
//	GET  /spi/faults                                list of Fault
//	POST /spi/faults                                the same, which replaces the old ones
//
// A participant may also be "virtual" or "closed". It authenticates nobody.
func (s *SPI) Control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /books", func(w http.ResponseWriter, r *http.Request) {
		reply(w, s.Books(r.URL.Query().Get("orders") == "1"), nil)
	})
	mux.HandleFunc("POST /participants", s.handleParticipant)
	mux.HandleFunc("POST /pay", s.handlePay)
	mux.HandleFunc("GET /spi/faults", func(w http.ResponseWriter, _ *http.Request) { reply(w, s.rules.Load().faults, nil) })
	mux.HandleFunc("POST /spi/faults", func(w http.ResponseWriter, r *http.Request) {
		faults := []Fault{}
		err := decode(w, r, &faults)
		if err == nil {
			err = s.SetFaults(faults...)
		}
		reply(w, faults, err)
	})
	return mux
}

// participantJSON is Participant as the control port takes it.
type participantJSON struct {
	ISPB         pix.ISPB   `json:"ispb"`
	Balance      pix.Amount `json:"balance"`
	Certificates string     `json:"certificates,omitempty"`
	Virtual      bool       `json:"virtual,omitempty"`
	Closed       bool       `json:"closed,omitempty"`
}

func (s *SPI) handleParticipant(w http.ResponseWriter, r *http.Request) {
	var j participantJSON
	err := decode(w, r, &j)
	p := Participant{ISPB: j.ISPB, Balance: j.Balance, Virtual: j.Virtual, Closed: j.Closed}
	if err == nil {
		p.Certificates, err = parseCertificates([]byte(j.Certificates))
	}
	if err == nil {
		err = s.AddParticipant(p)
	}
	reply(w, j, err)
}

func parseCertificates(text []byte) (certs []*x509.Certificate, err error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("spitest: certificate: %w", err)
		}
		certs = append(certs, cert)
	}
	return certs, nil
}

func (s *SPI) handlePay(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	channel, err := pix.ParseChannel(q.Get("channel"))
	from, errFrom := pix.ParseISPB(q.Get("from"))
	to, errTo := pix.ParseISPB(q.Get("to"))
	amount, errAmount := pix.ParseAmount(q.Get("amount"))
	n, errN := strconv.Atoi(q.Get("n"))
	if err := errors.Join(err, errFrom, errTo, errAmount, errN); err != nil {
		reply(w, nil, err)
		return
	}
	ids, err := s.Pay(channel, from, to, amount, n)
	reply(w, ids, err)
}

// Pay orders n payments by a virtual participant, as if it had sent them, and returns their identifiers.
func (s *SPI) Pay(channel pix.Channel, from, to pix.ISPB, amount pix.Amount, n int) ([]pix.EndToEndID, error) {
	if !s.ledger.virtual(from) {
		return nil, fmt.Errorf("spitest: %s is not a virtual participant", from)
	}
	if n < 1 || n > maxPayments {
		return nil, fmt.Errorf("spitest: %d payments: want 1 to %d", n, maxPayments)
	}
	ids := make([]pix.EndToEndID, n)
	for i := range ids {
		now := s.now().UTC().Truncate(time.Millisecond)
		id, err := pix.NewEndToEndID(from, now, rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("spitest: %w", err)
		}
		ids[i] = id
		body := payment{Priority: iso20022.High, ServiceLevel: iso20022.PAGPRI, CreditTransfer: iso20022.CreditTransfer{
			EndToEndID: id, Amount: amount, AcceptedAt: now, LocalInstrument: iso20022.MANU,
			Debtor: iso20022.Party{Name: "Fulano", ID: "11111111111"}, DebtorAgent: from, CreditorAgent: to,
			DebtorAccount: iso20022.Account{ID: "1", Branch: "1", Type: iso20022.CACC}, CreditorID: "22222222222",
			CreditorAccount: iso20022.Account{ID: "350017", Branch: "1", Type: iso20022.TRAN}, Purpose: iso20022.PurposePayment,
		}}
		if why := s.place([]*order{s.paymentOrder(body, from, channel, now)}); why != nil {
			return nil, fmt.Errorf("spitest: %s: %s", why.reason, why.detail)
		}
	}
	return ids, nil
}

func decode(w http.ResponseWriter, r *http.Request, v any) error {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxControlBody))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// The operator who left before the answer does not miss it.
	_ = json.NewEncoder(w).Encode(v)
}
