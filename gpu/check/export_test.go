package check

// Actors is the number of actors that a checker keeps.
func Actors(d *Device) int { return len(d.actors) }
