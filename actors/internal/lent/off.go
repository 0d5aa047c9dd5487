//go:build !poison

package lent

// Enabled says whether records are checked: the build tag poison is set.
const Enabled = false

// Ledger does nothing without the build tag poison.
type Ledger struct{}

// Lend returns the record itself.
func (*Ledger) Lend(_ string, record any) any { return record }

// Return returns the record itself.
func (*Ledger) Return(record any) any { return record }

// Recall does nothing.
func (*Ledger) Recall() {}

// Copy returns the request itself.
func Copy(request any) any { return request }

// Restore does nothing: the copy is the request.
func Restore(_, _ any) {}
