package protocol

// The requests of this file's types are calls that observers outside of the engine are told
// of: metrics and traces. They do not know this package, and ask each for its name by a
// method that they declare for themselves.

// Observed returns the name of the call and its refusal.
func (m *Fetch) Observed() (call string, refusal error) { return "fetch", m.Err }

// Observed returns the name of the call and its refusal.
func (m *DescribeSequence) Observed() (call string, refusal error) { return "export", m.Err }

// Observed returns the name of the call and its refusal.
func (m *TransferPages) Observed() (call string, refusal error) { return "export", m.Err }

// Observed returns the name of the call and its refusal.
func (m *BeginImport) Observed() (call string, refusal error) { return "import", m.Err }
