package iso20022

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
)

// many is the cardinality of a list that the schema leaves open; MaxSize bounds it.
const many = MaxSize

// walker goes through a message in document order, along its walk methods: reading, it fills the fields, writing, it checks
// and writes them. The first error ends it: all that follows does nothing. A path given to its methods is a chain of
// elements, each with the next one as its only child, down to the one that has the value.
type walker struct {
	header   *Header
	in       *reader // nil when writing
	out      []byte
	path     []step
	err      error
	noHeader bool // writing to check a message that has no header yet
}

// step is an element on the way from the root; index counts from 1 in a list, 0 elsewhere.
type step struct {
	name  string
	index int
}

// usual sizes, so that an ordinary message is built without growing.
const (
	usualDepth = 16
	usualSize  = 4 << 10
)

func reading(h *Header, envelope []byte) *walker {
	x := &walker{header: h, path: make([]step, 0, usualDepth)}
	x.in, x.err = newReader(envelope)
	return x
}

func writing(h *Header) *walker {
	return &walker{header: h, path: make([]step, 0, usualDepth), out: make([]byte, 0, usualSize)}
}

// fail records the first error, at the current element and the elements below it.
func (x *walker) fail(reason string, args ...any) { x.failAt(nil, reason, args...) }

func (x *walker) failAt(below []string, reason string, args ...any) {
	if x.err != nil {
		return
	}
	var path []byte
	for _, s := range x.path {
		path = append(append(path, '/'), s.name...)
		if s.index > 0 {
			path = append(strconv.AppendInt(append(path, '['), int64(s.index), 10), ']')
		}
	}
	for _, name := range below {
		path = append(append(path, '/'), name...)
	}
	at, why := string(path[min(1, len(path)):]), fmt.Sprintf(reason, args...)
	if x.in != nil {
		x.err = &SyntaxError{Path: at, Reason: why}
	} else {
		x.err = &InvalidError{Path: at, Reason: why}
	}
}

// check is a condition of the schema on what was just read or is written.
func (x *walker) check(ok bool, reason string, at ...string) {
	if !ok {
		x.failAt(at, "%s", reason)
	}
}

// since reports that the version of the message is this one or a later one: for what the version before did not have.
func (x *walker) since(version string) bool {
	if x.noHeader {
		return true
	}
	minor := func(v string) int {
		_, text, _ := strings.Cut(v, ".")
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0
		}
		return n
	}
	return minor(x.header.Version) >= minor(version)
}

// rule is a condition of the catalogue on what is written. What others wrote is taken as it is: answering it is the
// business of who reads it.
func (x *walker) rule(ok bool, reason string, at ...string) {
	if !ok && x.in == nil {
		x.failAt(at, "%s", reason)
	}
}

// next reports whether an element is there; writing, present says so.
func (x *walker) next(name string, present bool) bool {
	if x.err != nil {
		return false
	}
	if x.in == nil {
		return present
	}
	found, err := x.in.peek()
	if err != "" {
		x.fail("%s", err)
	}
	return found == name
}

// enter opens an element that must come now.
func (x *walker) enter(name string) { x.enterAt(step{name: name}, "") }

func (x *walker) enterAt(s step, attributes string) {
	if x.err != nil {
		return
	}
	if x.in == nil {
		x.path = append(x.path, s)
		x.out = append(append(append(append(x.out, '<'), s.name...), attributes...), '>')
		return
	}
	found, err := x.in.peek()
	switch {
	case err != "":
		x.fail("%s", err)
	case found == "":
		x.fail("%s is missing", s.name)
	case found != s.name:
		x.fail("found %s where %s must be", quote(found), s.name)
	default:
		x.path = append(x.path, s)
		if err := x.in.open(attributes); err != "" {
			x.fail("%s", err)
		}
	}
}

// leave closes an element: nothing may be left in it.
func (x *walker) leave(name string) {
	if x.err != nil {
		return
	}
	if x.in == nil {
		x.out = append(append(append(x.out, '<', '/'), name...), '>')
	} else if !x.in.close(name) {
		x.failToLeave()
		return
	}
	x.path = x.path[:len(x.path)-1]
}

// failToLeave says why the end of an element is not here.
func (x *walker) failToLeave() {
	switch found, err := x.in.peek(); {
	case err != "":
		x.fail("%s", err)
	case found != "":
		x.fail("found %s where nothing more may be", quote(found))
	default:
		x.fail("its end is missing")
	}
}

// group is an element [1..1] with children.
func (x *walker) group(name string, body func()) {
	x.enter(name)
	if x.err == nil {
		body()
	}
	x.leave(name)
}

// maybe is an element [0..1] with children.
func (x *walker) maybe(name string, present bool, body func()) {
	if x.next(name, present) {
		x.group(name, body)
	}
}

// pointer is an element [0..1] with children, held by a pointer that is nil when it is absent.
func pointer[T any](x *walker, p **T, name string, body func(*T, *walker)) {
	if !x.next(name, *p != nil) {
		return
	}
	if x.in != nil {
		*p = new(T)
	}
	x.enter(name)
	if x.err == nil {
		body(*p, x)
	}
	x.leave(name)
}

// list is an element [least..most] with children.
func list[T any](x *walker, items *[]T, least, most int, name string, body func(*T, *walker)) {
	for i := 0; i < most && x.next(name, i < len(*items)); i++ {
		if x.in != nil {
			*items = append(*items, *new(T))
		}
		x.enterAt(step{name, i + 1}, "")
		if x.err == nil {
			body(&(*items)[i], x)
		}
		x.leave(name)
	}
	x.check(len(*items) >= least && len(*items) <= most, "has too few or too many", name)
}

// text is an element [1..1] with a value of a form.
func text[S ~string](x *walker, v *S, f form, path ...string) {
	value := string(*v)
	if x.leaf(&value, path) {
		if want := f(value); want != "" {
			x.failAt(path, "%s", want)
		}
		if x.in != nil { // several may write one document at once
			*v = S(value)
		}
	}
}

// optional is an element [0..1] with a value of a form; "" when it is absent.
func optional[S ~string](x *walker, v *S, f form, path ...string) {
	if x.next(path[0], *v != "") {
		text(x, v, f, path...)
	}
}

// texts is an element [0..n] with values of a form.
func texts(x *walker, v *[]string, f form, name string) {
	for i := 0; x.next(name, i < len(*v)); i++ {
		if x.in != nil {
			*v = append(*v, "")
		}
		text(x, &(*v)[i], f, name)
	}
}

// fixed is an element [1..1] whose value is always the same.
func (x *walker) fixed(want string, path ...string) {
	value := want
	if x.leaf(&value, path) && value != want {
		x.failAt(path, "want %s", want)
	}
}

// instant is an element [1..1] with a time: UTC, exactly three decimals.
func (x *walker) instant(v *time.Time, path ...string) {
	var value string
	if x.in == nil {
		if v.UTC().Year() < 1 || v.UTC().Year() > 9999 || v.IsZero() {
			x.failAt(path, "want a time")
			return
		}
		value = v.UTC().Format(instantFormat)
	}
	if x.leaf(&value, path) && x.in != nil {
		value = trim(value)
		at, err := time.Parse(instantFormat, value)
		if err != nil || !shaped(value, instantFormat) || at.Year() < 1 {
			x.failAt(path, "want a time as 2026-01-31T15:04:05.000Z")
		}
		*v = at
	}
}

const instantFormat = "2006-01-02T15:04:05.000Z"

// optionalInstant is an element [0..1] with a time; nil when it is absent.
func (x *walker) optionalInstant(v **time.Time, path ...string) {
	if !x.next(path[0], *v != nil) {
		return
	}
	if x.in != nil {
		*v = new(time.Time)
	}
	x.instant(*v, path...)
}

// optionalDate is an element [0..1] with a date as text; nil when it is absent.
func (x *walker) optionalDate(v **string, path ...string) {
	if !x.next(path[0], *v != nil) {
		return
	}
	if x.in != nil {
		*v = new(string)
	}
	text(x, *v, date, path...)
}

// amount is an element [1..1] with money, whose attribute says that it is reais.
func (x *walker) amount(v *pix.Amount, path ...string) {
	var value string
	if x.in == nil {
		x.check(*v >= 0 && *v <= pix.MaxAmount, "want an amount from zero to 18 digits", path...)
		value = v.String()
	}
	if x.leafWith(&value, currency, path) && x.in != nil {
		a, ok := amount(trim(value))
		x.check(ok, "want an amount as 12.34", path...)
		*v = a
	}
}

// currency is the attribute of every amount.
const currency = ` Ccy="BRL"`

// count is an element [1..1] with a number of up to 15 digits.
func (x *walker) count(n *int, path ...string) {
	var value string
	if x.in == nil {
		value = strconv.Itoa(*n)
	}
	if !x.leaf(&value, path) {
		return
	}
	value = trim(value)
	number, err := strconv.Atoi(value)
	x.check(err == nil && digits(value) && len(value) <= 15, "want a number of at most 15 digits", path...)
	if x.in != nil {
		*n = number
	}
}

// transactions is NbOfTxs.
func (x *walker) transactions(n *int) {
	x.count(n, "NbOfTxs")
	x.rule(*n >= 1 && *n <= MaxTransactions, "want 1 to 10 transactions", "NbOfTxs")
}

func (x *walker) leaf(value *string, path []string) bool { return x.leafWith(value, "", path) }

// leafWith reads or writes the value at the end of a path, whose last element has these attributes; false after an error.
func (x *walker) leafWith(value *string, attributes string, path []string) bool {
	last := len(path) - 1
	for _, name := range path[:last] {
		x.enter(name)
	}
	x.enterAt(step{name: path[last]}, attributes)
	if x.err != nil {
		return false
	}
	if x.in == nil {
		x.writeText(*value)
	} else {
		got, err := x.in.text()
		if err != "" {
			x.fail("%s", err)
			return false
		}
		*value = got
	}
	for i := range path {
		x.leave(path[last-i])
	}
	return x.err == nil
}
