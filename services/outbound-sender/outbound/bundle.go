package outbound

import (
	"encoding/json"
	"fmt"

	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

// The kinds of message whose operations may go together.
const (
	msgPacs008 = "pacs.008"
	msgPacs002 = "pacs.002"
	msgPacs004 = "pacs.004"
)

// bundle is the operations that go in one message, and its document.
type bundle struct {
	ops      []store.Operation
	document iso20022.Document
}

// bundles puts operations together, in their order. broken are those that no document can be made of, and why.
func bundles(ops []store.Operation, groups Groups) (all []*bundle, broken map[int64]error) {
	open := make(map[string]*bundle) // those that take more, by kind
	broken = make(map[int64]error)
	for _, o := range ops {
		document, kind, err := document(o)
		if err != nil {
			broken[o.ID] = err
			continue
		}
		size := groups.size(o.MsgType)
		if b := open[kind]; b != nil && !o.Alone && size > 1 {
			b.ops = append(b.ops, o)
			merge(b.document, document)
			if len(b.ops) == size {
				delete(open, kind)
			}
			continue
		}
		b := &bundle{ops: []store.Operation{o}, document: document}
		all = append(all, b)
		if !o.Alone && size > 1 {
			open[kind] = b
		}
	}
	return all, broken
}

// document reads an operation as a document of its own. Documents of one kind may be merged: what
// stands in the header of a group is the same in them.
func document(o store.Operation) (d iso20022.Document, kind string, err error) {
	kind = o.MsgType
	switch o.MsgType {
	case msgPacs008:
		order, err := read[iso20022.CreditTransfer](o)
		return payment(o.Channel, *order), kind, err
	case msgPacs002:
		status, err := read[iso20022.PaymentStatus](o)
		return &iso20022.Pacs002{Statuses: []iso20022.PaymentStatus{*status}}, kind, err
	case msgPacs004:
		back, err := read[iso20022.PaymentReturn](o)
		return &iso20022.Pacs004{Returns: []iso20022.PaymentReturn{*back}}, kind, err
	case "camt.060":
		d, err = read[iso20022.Camt060](o)
	case "pibr.001":
		d, err = read[iso20022.Pibr001](o)
	case "pibr.002":
		d, err = read[iso20022.Pibr002](o)
	default:
		err = fmt.Errorf("operation %d is a %.16q, which nobody sends", o.ID, o.MsgType)
	}
	return d, kind, err
}

// payment is a pacs.008 with one transaction. The channel says how urgent it is: what is due now goes over the primary
// one, what was scheduled over the secondary.
func payment(channel pix.Channel, order iso20022.CreditTransfer) *iso20022.Pacs008 {
	d := &iso20022.Pacs008{
		Priority: iso20022.High, ServiceLevel: iso20022.PAGPRI, Transactions: []iso20022.CreditTransfer{order},
	}
	if channel == pix.CSM {
		d.Priority, d.ServiceLevel = iso20022.Normal, iso20022.PAGAGD
	}
	return d
}

func read[T any](o store.Operation) (*T, error) {
	v := new(T)
	if err := json.Unmarshal(o.Body, v); err != nil {
		return v, fmt.Errorf("operation %d: %w", o.ID, err)
	}
	return v, nil
}

// merge adds the operations of one document to another of its kind.
func merge(into, more iso20022.Document) {
	switch d := into.(type) {
	case *iso20022.Pacs008:
		d.Transactions = append(d.Transactions, more.(*iso20022.Pacs008).Transactions...)
	case *iso20022.Pacs002:
		d.Statuses = append(d.Statuses, more.(*iso20022.Pacs002).Statuses...)
	case *iso20022.Pacs004:
		d.Returns = append(d.Returns, more.(*iso20022.Pacs004).Returns...)
	}
}
