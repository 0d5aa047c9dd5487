package handover

import (
	"fmt"
	"reflect"

	"github.com/kvactor/kvactor/messages"
)

// Shape is what the pages of a stream depend on. Two engines with the same shape can hand
// sequences over, whatever numbers of pages they have. What differs is named to people, which a
// hash could not do.
type Shape struct {
	// Model names the weights, by WithHandover. Pages of other weights are wrong and look right.
	Model     string
	MaxSeqLen int
	Pools     []messages.PoolInfo
	// Ranks is the number of devices, each of which has a share of every page; 0 stands for
	// 1. A page in the stream is all shares, in the order of the ranks.
	Ranks int `json:",omitempty"`
	// Scales are what the elements of 8 bits were divided by.
	Scales []messages.LayerScale
}

// Difference names the first field in which the shape of a stream differs from one's own;
// "" if there is none.
func (s *Shape) Difference(stream *Shape) string {
	switch {
	case s.Model != stream.Model:
		return differs("model", s.Model, stream.Model)
	case s.MaxSeqLen != stream.MaxSeqLen:
		return differs("max_seq_len", s.MaxSeqLen, stream.MaxSeqLen)
	// An engine over one device has 0 ranks, a group of one device 1: their pages are the same.
	case max(1, s.Ranks) != max(1, stream.Ranks):
		return differs("number of ranks", max(1, s.Ranks), max(1, stream.Ranks))
	case len(s.Pools) != len(stream.Pools):
		return fmt.Sprintf("%d pools %v here, %d %v in the stream", len(s.Pools), names(s.Pools),
			len(stream.Pools), names(stream.Pools))
	}
	for i := range s.Pools {
		if d := poolDifference(&s.Pools[i], &stream.Pools[i]); d != "" {
			return fmt.Sprintf("pool %s: %s", s.Pools[i].Name, d)
		}
	}
	if len(s.Scales) != len(stream.Scales) {
		return differs("number of scales", len(s.Scales), len(stream.Scales))
	}
	// A scale belongs to the bytes of 8-bit elements: read with another one, they are other
	// numbers.
	for i, own := range s.Scales {
		if other := stream.Scales[i]; own != other {
			return differs("scale", scaleText(own), scaleText(other))
		}
	}
	return ""
}

// scaleText gives the values of a scale and its layer.
func scaleText(s messages.LayerScale) string {
	kind := ""
	if s.Cross {
		kind = "cross attention of "
	}
	return fmt.Sprintf("K %v, V %v of %slayer %d", s.K, s.V, kind, s.Layer)
}

func names(pools []messages.PoolInfo) (list []string) {
	for i := range pools {
		list = append(list, pools[i].Name)
	}
	return list
}

func differs(field string, here, stream any) string {
	return fmt.Sprintf("%s is %v here, %v in the stream", field, here, stream)
}

// poolDifference names the first field of a shape in which two pools differ, by its tag.
func poolDifference(here, stream *messages.PoolInfo) string {
	own, other := reflect.ValueOf(*here), reflect.ValueOf(*stream)
	for i := range own.NumField() {
		a, b := own.Field(i).Interface(), other.Field(i).Interface()
		name, shape := own.Type().Field(i).Tag.Lookup("shape")
		if shape && !reflect.DeepEqual(a, b) {
			return differs(name, a, b)
		}
	}
	return ""
}
