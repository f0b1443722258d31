package api

// The structs of this file are what the interface answers, field by field, as openapi.yaml has them, and those of package order what
// it is asked; a test compares the two.

// payment answers POST and GET of one payment, and stands in a list.
type payment struct {
	EndToEndID string `json:"endToEndId"`
	TxID       string `json:"txid,omitempty"`
	Direction  string `json:"direcao"`
	State      string `json:"estado"`
	Status     string `json:"status"`
	Reason     string `json:"motivo,omitempty"`
	Detail     string `json:"detalhe,omitempty"`
	Channel    string `json:"canal"`
	Amount     string `json:"valor"`
	Returned   string `json:"valorDevolvido"`
	AcceptedAt string `json:"horario"`
	SettledAt  string `json:"horarioLiquidacao,omitempty"`
	Key        string `json:"chave,omitempty"`
	Instrument string `json:"formaIniciacao"`
	Purpose    string `json:"finalidade"`
	Initiator  string `json:"cnpjIniciador,omitempty"`
	Text       string `json:"infoPagador,omitempty"`
	Payer      party  `json:"pagador"`
	Receiver   party  `json:"recebedor"`
	// Returns and Events are given for one payment, not in a list.
	Returns []refund `json:"devolucoes,omitempty"`
	Events  []event  `json:"eventos,omitempty"`
}

type party struct {
	ISPB        string `json:"ispbParticipante"`
	Name        string `json:"nome,omitempty"`
	CPF         string `json:"cpf,omitempty"`
	CNPJ        string `json:"cnpj,omitempty"`
	Branch      string `json:"agencia,omitempty"`
	Account     string `json:"conta"`
	AccountType string `json:"tipoConta"`
}

// refund answers PUT and GET of one return.
type refund struct {
	ID       string      `json:"id,omitempty"`
	ReturnID string      `json:"rtrId"`
	State    string      `json:"estado"`
	Status   string      `json:"status"`
	Reason   string      `json:"motivo,omitempty"`
	Detail   string      `json:"detalhe,omitempty"`
	Amount   string      `json:"valor"`
	Nature   string      `json:"natureza"`
	Text     string      `json:"descricao,omitempty"`
	At       refundTimes `json:"horario"`
	// Events are given for one return, not inside its payment.
	Events []event `json:"eventos,omitempty"`
}

type refundTimes struct {
	Asked   string `json:"solicitacao"`
	Settled string `json:"liquidacao,omitempty"`
}

// event is a line of a payment's history: what happened, who said so, and why.
type event struct {
	At     string `json:"horario"`
	Was    string `json:"de,omitempty"`
	Became string `json:"para"`
	Who    string `json:"quem"`
	Reason string `json:"motivo,omitempty"`
	Detail string `json:"detalhe,omitempty"`
}

// listing answers GET /v1/pix.
type listing struct {
	Parameters parameters `json:"parametros"`
	Payments   []payment  `json:"pix"`
}

type parameters struct {
	From  string `json:"inicio"`
	Until string `json:"fim"`
	Page  page   `json:"paginacao"`
}

type page struct {
	Size int `json:"itensPorPagina"`
	// Next asks for the page after this one; absent on the last.
	Next string `json:"cursor,omitempty"`
}
