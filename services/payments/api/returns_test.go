package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/iso20022"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
)

func TestReturn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	original := w.received(1000, w.now().Add(-time.Hour))
	path := "/v1/pix/" + original + "/devolucao/abc1"
	require.Equal(t, http.StatusNotFound, w.get(path).Code)
	said := w.read(w.put(path, `{"valor":"4.00","natureza":"MED_FRAUDE","descricao":"Fraude 🚨"}`), http.StatusCreated)
	require.Equal(t, "created", said["estado"])
	require.Equal(t, "EM_PROCESSAMENTO", said["status"])
	require.Equal(t, "abc1", said["id"])
	rtrID, err := pix.ParseReturnID(said["rtrId"].(string)) //nolint:forcetypeassert // a failed one fails the test
	require.NoError(t, err)
	require.Equal(t, us, rtrID.ISPB())

	row, err := w.payments.Get(t.Context(), string(rtrID))
	require.NoError(t, err)
	var r iso20022.PaymentReturn
	require.NoError(t, json.Unmarshal(row.Document, &r))
	require.Equal(t, iso20022.PaymentReturn{
		ReturnID: rtrID, OriginalEndToEndID: pix.EndToEndID(original), Amount: 400, Priority: iso20022.High,
		Reason: iso20022.ReturnReason{Code: iso20022.ReturnFraud}, Remittance: "Fraude 🚨", DebtorAgent: them, CreditorAgent: us,
	}, r)
	queued := <-w.announced
	require.Equal(t, "pacs.004", queued.MsgType)
	require.Equal(t, string(rtrID), queued.PaymentID)

	// Repeated: the same return, in its state of now. Another content under the name: a conflict.
	w.move(store.Move{ID: string(rtrID), To: pix.Settled, Who: "spi", SettledAt: w.now()})
	again := w.read(w.put(path, `{"valor":"4.00","natureza":"MED_FRAUDE","descricao":"Fraude 🚨"}`), http.StatusOK)
	require.Equal(t, string(rtrID), again["rtrId"])
	require.Equal(t, "DEVOLVIDO", again["status"])
	require.Equal(t, http.StatusConflict, w.put(path, `{"valor":"4.01","natureza":"MED_FRAUDE","descricao":"Fraude 🚨"}`).Code)
	require.Equal(t, http.StatusConflict, w.put(path, `{"valor":"4.00"}`).Code)
	require.Empty(t, w.announced)

	seen := w.read(w.get(path), http.StatusOK)
	require.Len(t, seen["eventos"], 2)
	payment := w.read(w.get("/v1/pix/"+original), http.StatusOK)
	require.Equal(t, "4.00", payment["valorDevolvido"])
	require.Len(t, payment["devolucoes"], 1)
}

// The sum of the returns stays within the payment, whoever asks at once; a rejected one gives its amount back.
func TestReturnsWithinThePayment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path := "/v1/pix/" + w.received(1000, w.now()) + "/devolucao/"
	require.Equal(t, []string{"valor"}, w.violated(w.put(path+"a", `{"valor":"10.01"}`), http.StatusUnprocessableEntity))
	codes := make([]int, 8)
	var all sync.WaitGroup
	for i := range codes {
		all.Go(func() { codes[i] = w.put(fmt.Sprint(path, "r", i), `{"valor":"3.00"}`).Code })
	}
	all.Wait()
	created := 0
	for _, code := range codes {
		if code == http.StatusCreated {
			created++
		} else {
			require.Equal(t, http.StatusUnprocessableEntity, code)
		}
	}
	require.Equal(t, 3, created)
	queued := <-w.announced
	w.move(store.Move{ID: queued.PaymentID, To: pix.Rejected, Who: "spi", Reason: "AM09"})
	require.Equal(t, http.StatusCreated, w.put(path+"again", `{"valor":"4.00"}`).Code)
	require.Equal(t, http.StatusUnprocessableEntity, w.put(path+"more", `{"valor":"0.01"}`).Code)
}

// The same return at once is one return.
func TestSameReturnAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path := "/v1/pix/" + w.received(1000, w.now()) + "/devolucao/same"
	ids := make([]string, 8)
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			answer := w.put(path, `{"valor":"10.00"}`)
			require.Contains(t, []int{http.StatusCreated, http.StatusOK}, answer.Code, answer.Body.String())
			var said struct{ RtrID string }
			require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &said))
			ids[i] = said.RtrID
		})
	}
	all.Wait()
	for _, id := range ids {
		require.Equal(t, ids[0], id)
	}
	require.Len(t, w.announced, 1)
}

func TestReturnsThatAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const whole = `{"valor":"1.00"}`
	require.Equal(t, http.StatusNotFound, w.put("/v1/pix/"+w.id(them, w.now())+"/devolucao/a", whole).Code)

	ours := w.read(w.order(order(nil), "k"), http.StatusCreated)["endToEndId"].(string) //nolint:forcetypeassert // a failed one fails the test
	require.Equal(t, http.StatusUnprocessableEntity, w.put("/v1/pix/"+ours+"/devolucao/a", whole).Code)

	inside := w.received(100, w.now().Add(-90*24*time.Hour+time.Minute))
	require.Equal(t, http.StatusCreated, w.put("/v1/pix/"+inside+"/devolucao/a", whole).Code)
	late := w.received(100, w.now().Add(-90*24*time.Hour-time.Minute))
	require.Equal(t, http.StatusUnprocessableEntity, w.put("/v1/pix/"+late+"/devolucao/a", whole).Code)

	open := w.received(100, w.now())
	row, err := w.payments.Get(t.Context(), open)
	require.NoError(t, err)
	row.ID, row.State, row.SettledAt = w.id(them, w.now()), pix.Accepted, time.Time{}
	require.NoError(t, w.db.InTx(t.Context(), func(ctx context.Context, tx *store.Tx) error {
		_, err := w.payments.Insert(ctx, tx, row, "core")
		return err
	}))
	require.Equal(t, http.StatusUnprocessableEntity, w.put("/v1/pix/"+row.ID+"/devolucao/a", whole).Code)

	for body, field := range map[string]string{
		`{}`:                                  "valor",
		`{"valor":"0.00"}`:                    "valor",
		`{"valor":"1.00","natureza":"MD06"}`:  "natureza",
		`{"valor":"1.00","descricao":"a\nb"}`: "descricao",
		`{"valor":"1.00","codigo":"MD06"}`:    "codigo",
		`{"valor":"1.00","valor":"1.00"}`:     "valor",
		`{"valor":1}`:                         "valor",
	} {
		require.Equal(t, []string{field}, w.violated(w.put("/v1/pix/"+open+"/devolucao/bad", body), http.StatusBadRequest), body)
	}
	require.Equal(t, []string{"natureza"}, w.violated(w.put("/v1/pix/"+open+"/devolucao/cash", `{"valor":"0.50","natureza":"RETIRADA"}`), http.StatusUnprocessableEntity))
}
