//go:build poison && unix

package lent

import (
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"strings"
	"unsafe"
)

// Enabled says whether records are checked: the build tag poison is set.
const Enabled = true

// Ledger knows the records that one owner has lent. It belongs to its owner, as
// the records do; the zero Ledger is ready for use.
type Ledger struct {
	loans map[any]*loan     // by the copy that the receiver has
	spent map[string]*clone // by receiver, the last copy that has come back
}

// loan is one record on its way.
type loan struct {
	to     string
	record reflect.Value // the struct that the owner's pointer leads to
	saved  reflect.Value // its fields before they became poison
	image  reflect.Value // a deep copy of saved
	poison []byte        // the record's memory as it has to stay
	copy   *clone
}

// Lend makes a record poison and returns the copy that its receiver gets. The
// record is a pointer to a struct.
func (l *Ledger) Lend(to string, record any) any {
	if l.loans == nil {
		l.loans, l.spent = map[any]*loan{}, map[string]*clone{}
	}
	if old := l.spent[to]; old != nil {
		old.scrub()
		delete(l.spent, to)
	}
	// The order matters: what is saved has the owner's slices, the image and the copy are made
	// from that, and only then does the record itself become poison.
	v := reflect.ValueOf(record).Elem()
	saved := reflect.New(v.Type()).Elem()
	saved.Set(v)
	n := &loan{to: to, record: v, saved: saved, image: newClone(saved).value, copy: newClone(saved)}
	poison(v)
	n.poison = append([]byte(nil), memory(v)...)
	out := n.copy.value.Addr().Interface()
	l.loans[out] = n
	return out
}

// Return ends a loan: it puts what the receiver has answered into the owner's
// record and returns that. What is no copy of the ledger's it returns unchanged.
func (l *Ledger) Return(answer any) any {
	n, lent := l.loans[answer]
	if !lent {
		return answer
	}
	delete(l.loans, answer)
	// Two checks: the record itself must still be poison. The arrays behind its slices are as
	// they were, since others share them, and are compared with the image.
	if string(memory(n.record)) != string(n.poison) {
		fail("%v was written to by its owner while it was lent to %s", n.record.Type(), n.to)
	}
	if at := difference(n.saved, n.image, n.record.Type().String()); at != "" {
		fail("%s was changed by its owner while it was lent to %s", at, n.to)
	}

	n.record.Set(n.saved)
	n.copy.restore(n.record, n.copy.value)
	l.spent[n.to] = n.copy
	return n.record.Addr().Interface()
}

// Recall ends all loans: their receivers have dropped the records, in a panic, as far
// as they have come with them. The owner uses its records again after a failure: the
// fields of one that stays lent would be poison for ever.
func (l *Ledger) Recall() {
	for answer := range l.loans {
		l.Return(answer)
	}
}

// Copy returns a deep copy of a host's request, for the engine to serve in its
// place. What is no request of package messages or of one below it is returned itself:
// answers between actors may contain what they share.
func Copy(request any) any {
	v := reflect.ValueOf(request)
	if v.Kind() != reflect.Pointer || v.IsNil() || !strings.Contains(v.Type().Elem().PkgPath()+"/", "/kvactor/messages/") {
		return request
	}
	return deep(v).Interface()
}

// Restore puts the answer in a request's copy into the request, and makes the copy
// garbage: the engine may not look at a request that it has answered.
func Restore(request, copied any) {
	if reflect.ValueOf(request).Kind() != reflect.Pointer || request == copied {
		return
	}
	// A copy of the copy, which shares no array with what becomes garbage.
	answer := deep(reflect.ValueOf(copied))
	reflect.ValueOf(request).Elem().Set(answer.Elem())
	garbage(reflect.ValueOf(copied), map[unsafe.Pointer]bool{})
}

// memory is the bytes of a struct.
func memory(v reflect.Value) []byte {
	return unsafe.Slice((*byte)(v.Addr().UnsafePointer()), v.Type().Size())
}

// fail ends the program, with the stack of the goroutine that has found the mistake.
func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "lent: "+format+"\n%s", append(args, debug.Stack())...)
	os.Exit(2)
}
