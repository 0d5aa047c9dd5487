package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestReports: extracts of files that caches have read wrong.
func TestReports(t *testing.T) {
	for file, want := range map[string]string{
		"longcat-flash.config.json":      "wfullh1 56 64512",
		"ouro.config.json":               "wfullh16 96 786432",
		"pangu-ultra-moe.config.json":    "wfullh1 61 70272",
		"hunyuan-large-cla.config.json":  "wfullh8 32 131072",
		"rwkv7.config.json":              "state 24 12976128",
		"glm-5.2-indexshare.config.json": "wfullh1 21 26964, wfullh1.2 57 65664",
		"exaone4-32b.config.json":        "w4096h8 48 196608, wfullh8 16 65536",
		"phi-4-multimodal.config.json":   "wfullh8 32 131072",
		"paligemma.config.json":          "wfullh1 18 18432",
		"lfm2.config.json":               "wfullh8 6 12288, state 10 81920",
	} {
		m, err := Open("testdata/reports/"+file, Options{})
		if assert.NoError(t, err, file) {
			assert.Equal(t, want, drawn(t, m), file)
		}
	}
}
