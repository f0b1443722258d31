package order

// Class is the kind of no that a Refusal is.
type Class string

// The classes.
const (
	// Malformed: the request cannot be read or a field has not its form. Nothing depends on when or by whom it was sent.
	Malformed Class = "malformed"
	// Refused: it was read, and a rule of the Gate, or the books, refuse it; or it would go out on a channel that is off.
	Refused Class = "refused"
	// Taken: something exists under the same name.
	Taken Class = "taken"
)

// Refusal is the error of an order that is not taken, for programs and for people. Its texts are read by people, in
// Portuguese, and hold nothing of what the client sent but names of fields.
type Refusal struct { //nolint:errname // a no, and not a fault
	Class Class
	// Kind is a word for programs: lower-case words with hyphens.
	Kind string
	// Title says the kind in words; Detail what is particular to this one.
	Title, Detail string
	// Violations name the fields at fault, in the order of the request.
	Violations []Violation
}

// Error makes a Refusal what a function can return.
func (r *Refusal) Error() string { return string(r.Class) + ": " + r.Title }

// Violation says what is wrong with one field.
type Violation struct {
	// Field is its path, as recebedor.conta.
	Field string `json:"campo"`
	// Reason says what is wanted.
	Reason string `json:"razao"`
}

// maxViolations bounds what a refusal lists, and maxField a name that the client may have invented.
const (
	maxViolations = 20
	maxField      = 60
)

// Violations collects what is wrong with the fields of one request.
type Violations []Violation

// Add notes what is wrong with a field.
func (v *Violations) Add(field, reason string) {
	if len(*v) >= maxViolations {
		return
	}
	if runes := []rune(field); len(runes) > maxField {
		field = string(runes[:maxField]) + "…"
	}
	*v = append(*v, Violation{Field: field, Reason: reason})
}

// Refusal returns nil, or the Refusal that lists them.
func (v *Violations) Refusal() error {
	if len(*v) == 0 {
		return nil
	}
	return &Refusal{
		Class: Malformed, Kind: "campos-invalidos", Title: "Campos inválidos", Detail: "Um ou mais campos não têm a forma exigida.",
		Violations: *v,
	}
}
