package order

// The structs of this file are what a client asks with, field by field, as the openapi.yaml of the HTTP interface has them;
// a test there compares the two.

// PaymentRequest asks for a payment: the body of POST /v1/pix, and of an event all but its id.
type PaymentRequest struct {
	EndToEndID string    `json:"endToEndId"`
	TxID       string    `json:"txid"`
	Amount     string    `json:"valor"`
	Key        string    `json:"chave"`
	Instrument string    `json:"formaIniciacao"`
	Purpose    string    `json:"finalidade"`
	Service    string    `json:"nivelServico"`
	Initiator  string    `json:"cnpjIniciador"`
	Text       string    `json:"infoPagador"`
	Payer      *Payer    `json:"pagador"`
	Receiver   *Receiver `json:"recebedor"`
}

// Payer is whose money it is.
type Payer struct {
	Name        string `json:"nome"`
	CPF         string `json:"cpf"`
	CNPJ        string `json:"cnpj"`
	Branch      string `json:"agencia"`
	Account     string `json:"conta"`
	AccountType string `json:"tipoConta"`
}

// Receiver is who gets it.
type Receiver struct {
	ISPB        string `json:"ispbParticipante"`
	CPF         string `json:"cpf"`
	CNPJ        string `json:"cnpj"`
	Branch      string `json:"agencia"`
	Account     string `json:"conta"`
	AccountType string `json:"tipoConta"`
}

// ReturnRequest asks for a return: the body of PUT /v1/pix/{e2eid}/devolucao/{id}.
type ReturnRequest struct {
	Amount string `json:"valor"`
	Nature string `json:"natureza"`
	Text   string `json:"descricao"`
}

// eventRequest asks for a payment through a stream. ID is its idempotency key.
type eventRequest struct {
	ID string `json:"id"`
	PaymentRequest
}
