package handover_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kvactor/kvactor/actors/internal/handover"
	"github.com/kvactor/kvactor/messages"
)

func TestDifferenceOfScales(t *testing.T) {
	shape := func(s messages.LayerScale) *handover.Shape {
		return &handover.Shape{Scales: []messages.LayerScale{s}}
	}
	own := messages.LayerScale{Layer: 3, Cross: true, K: 8, V: 4}
	other := own
	other.K = 0.5
	assert.Empty(t, shape(own).Difference(shape(own)))
	assert.Equal(t,
		"scale is K 8, V 4 of cross attention of layer 3 here, "+
			"K 0.5, V 4 of cross attention of layer 3 in the stream",
		shape(own).Difference(shape(other)))
}
