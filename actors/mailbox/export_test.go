package mailbox

// Budget sets how many messages a sender works off before the worker takes over.
func Budget(messages int) Option {
	return func(m *Mailbox) {
		if m.budget > 0 {
			m.budget = messages
		}
	}
}
