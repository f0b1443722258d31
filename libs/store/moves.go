package store

import (
	"context"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store/db"
)

// Move asks that a payment come to a state.
type Move struct {
	ID string
	To pix.State
	// Who, Reason and Detail become the event's; Reason and Detail also the payment's.
	Who, Reason, Detail string
	// SettledAt is the SPI's time when To is Settled; zero: the database's. Not read otherwise.
	SettledAt time.Time
}

// Moved says what a Move did.
type Moved struct {
	ID string
	// Was is the state that the move found, and Became the one in which it left the payment: where it stood, unless Changed.
	Was, Became pix.State
	// Changed is false if the payment stood in that state already, or in one that it does not follow.
	Changed    bool
	Kind       pix.Kind
	Direction  pix.Direction
	Amount     pix.Amount
	OriginalID string
}

// Move brings each payment to its state if this may follow the one in which it stands (pix.State.Next), and writes the
// event. What may not move is left as it is and comes back with Changed false; an ID that is not booked is missing from
// the result, which is otherwise in the order of the moves. A return that becomes rejected gives its amount back to its
// original.
//
// The rows stay locked until the end of the transaction, taken in the order of their IDs: call Move once with all that
// belongs together, not once for each.
func (p *Payments) Move(ctx context.Context, tx *Tx, moves []Move) ([]Moved, error) {
	moved, err := p.move(ctx, tx.tx, moves)
	return moved, translate("move payments", err)
}

func (p *Payments) move(ctx context.Context, tx db.DBTX, moves []Move) ([]Moved, error) {
	results := make([]*Moved, len(moves))
	left := make([]int, len(moves))
	for i := range left {
		left[i] = i
	}
	// A statement moves a payment once; what comes twice waits for the next round, which locks nothing new.
	for len(left) > 0 {
		round, again := map[string]int{}, []int(nil)
		for _, i := range left {
			if _, twice := round[moves[i].ID]; twice {
				again = append(again, i)
			} else {
				round[moves[i].ID] = i
			}
		}
		if err := p.moveRound(ctx, tx, moves, round, results); err != nil {
			return nil, err
		}
		left = again
	}
	found := make([]Moved, 0, len(moves))
	for _, r := range results {
		if r != nil {
			found = append(found, *r)
		}
	}
	return found, nil
}

// moveRound does the moves that round names by payment, each payment once.
func (p *Payments) moveRound(ctx context.Context, tx db.DBTX, moves []Move, round map[string]int, results []*Moved) error {
	params := db.MovePaymentsParams{Legal: legalMoves()}
	for id, i := range round {
		m := moves[i]
		params.Ids = append(params.Ids, id)
		params.Became = append(params.Became, string(m.To))
		params.Who = append(params.Who, m.Who)
		params.Reasons = append(params.Reasons, m.Reason)
		params.Details = append(params.Details, m.Detail)
		params.SettledAt = append(params.SettledAt, m.SettledAt)
	}
	rows, err := p.q.MovePayments(ctx, tx, params)
	for _, r := range rows {
		i := round[r.ID]
		result := Moved{
			ID: r.ID, Was: pix.State(r.Was), Became: pix.State(r.Was), Changed: r.May,
			Kind: pix.Kind(r.Kind), Direction: pix.Direction(r.Direction), Amount: pix.Amount(r.Amount), OriginalID: r.OriginalID,
		}
		if r.May {
			result.Became = moves[i].To
		}
		results[i] = &result
	}
	return err
}

// legalMoves lists pix's moves as the statement reads them: "created>sent".
func legalMoves() []string {
	var legal []string
	for _, was := range pix.States() {
		for _, next := range was.Next() {
			legal = append(legal, string(was)+">"+string(next))
		}
	}
	return legal
}
