package messages

// Answers tells of which epoch of the coordinator's life a record is; answers
// of one that is over are nobody's.

// Answers gives the epoch.
func (m *Match) Answers() uint32 { return m.Epoch }

// Answers gives the epoch.
func (m *Apply) Answers() uint32 { return m.Epoch }

// Answers gives the epoch.
func (m *Forget) Answers() uint32 { return m.Epoch }

// Answers gives the epoch.
func (m *Locate) Answers() uint32 { return m.Epoch }

// Answers gives the epoch.
func (m *Snapshot) Answers() uint32 { return m.Epoch }

// Answers gives the epoch.
func (m *Contents) Answers() uint32 { return m.Epoch }

// Answers gives the epoch.
func (m *PoolWork) Answers() uint32 { return m.Epoch }

// Answers gives the epoch.
func (m *Move) Answers() uint32 { return m.Epoch }

// Answers gives the epoch.
func (m *Audit) Answers() uint32 { return m.Epoch }

// Answers gives the epoch.
func (m *ResizePool) Answers() uint32 { return m.Epoch }

// Answers gives the epoch.
func (m *ResizeDevice) Answers() uint32 { return m.Epoch }

// Answers gives the epoch.
func (m *Survey) Answers() uint32 { return m.Epoch }

// Answers gives the epoch.
func (m *Quiesce) Answers() uint32 { return m.Epoch }

// Answers gives the epoch.
func (m *RebuildPool) Answers() uint32 { return m.Epoch }

// Answers gives the epoch.
func (m *Ahead) Answers() uint32 { return m.Epoch }

// Answers gives the epoch.
func (m *RebuildHost) Answers() uint32 { return m.Epoch }

// Aborted gives a request back to a host that is an actor when it could not be
// served, because an actor of the engine failed or the engine has ended.
type Aborted struct {
	Request any
	Err     error
}
