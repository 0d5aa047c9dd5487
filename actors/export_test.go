package actors

// DrawPool draws pool i as the engine makes it.
func (e *Engine) DrawPool(i int) string { return e.newPool(i).String() }
