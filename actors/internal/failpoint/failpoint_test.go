package failpoint_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/actors/internal/failpoint"
	"github.com/kvactor/kvactor/messages"
)

// An armed point panics once, at the next message and nowhere else.
func TestArm(t *testing.T) {
	var s failpoint.Set
	var p failpoint.Point
	s.Add("tree", &p)
	p.Hit("tree")
	p.Step("tree")
	require.NoError(t, s.Arm("tree"))
	_, breaks := p.Within()
	assert.False(t, breaks)
	p.Step("tree")
	assert.PanicsWithValue(t, "tree: panic on request", func() { p.Hit("tree") })
	p.Hit("tree")
	require.NoError(t, s.Arm("tree"))
	assert.True(t, p.Take())
	assert.False(t, p.Take())
}

// A point that is armed within a change counts its steps, or tells the actor
// where to break off.
func TestArmWithin(t *testing.T) {
	var s failpoint.Set
	var p failpoint.Point
	s.Add("coordinator", &p)
	require.NoError(t, s.ArmWithin("coordinator", 2))
	p.Hit("coordinator")
	p.Step("coordinator")
	p.Step("coordinator")
	assert.Panics(t, func() { p.Step("coordinator") })
	p.Step("coordinator")

	require.NoError(t, s.ArmWithin("coordinator", 3))
	parts, breaks := p.Within()
	assert.True(t, breaks)
	assert.Equal(t, 3, parts)
	_, breaks = p.Within()
	assert.False(t, breaks)

	require.NoError(t, s.ArmWithin("coordinator", -1))
	p.Disarm()
	p.Step("coordinator")
}

// A change is made once, and one that breaks off panics before it or behind it.
func TestChange(t *testing.T) {
	var s failpoint.Set
	var p failpoint.Point
	s.Add("tree", &p)
	done := 0
	change := func() { done++ }
	p.Change("tree", change)
	require.Equal(t, 1, done)
	for parts, want := range []int{1, 2} {
		require.NoError(t, s.ArmWithin("tree", parts))
		require.PanicsWithValue(t, "tree: panic on request", func() { p.Change("tree", change) })
		require.Equal(t, want, done)
	}
	p.Change("tree", change)
	require.Equal(t, 3, done)
}

func TestUnknownActors(t *testing.T) {
	var s failpoint.Set
	s.Add("tree", &failpoint.Point{})
	s.Add("events", &failpoint.Point{})
	err := s.Arm("absent")
	require.ErrorIs(t, err, messages.ErrBadRequest)
	assert.EqualError(t, err, `no actor "absent": there are events, tree`)
	(*failpoint.Set)(nil).Add("tree", &failpoint.Point{})
}
