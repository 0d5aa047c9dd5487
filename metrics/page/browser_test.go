package page

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// browser runs a headless Chromium and returns what it prints; the test is skipped where
// there is none.
func browser(t *testing.T, args ...string) (out, log string) {
	if testing.Short() {
		t.Skip("a browser takes some seconds")
	}
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium on this machine")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, chromium, append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--user-data-dir=" + t.TempDir(),
		"--enable-logging=stderr", "--virtual-time-budget=3000",
	}, args...)...)
	var text strings.Builder
	c.Stderr = &text
	dom, err := c.Output()
	if err != nil {
		t.Skipf("chromium does not run here: %v", err)
	}
	return string(dom), text.String()
}

// A browser loads the page without an error and shows the numbers of /stats.
func TestInABrowser(t *testing.T) {
	at := serve(t, engine{})
	dom, log := browser(t, "--dump-dom", at+"/?still")
	assert.NotContains(t, log, "CONSOLE")
	for _, want := range []string{
		`id="title">kvactor: m<`, `id="state">live<`, `id="hit-rate">75.0 %<`, `id="requests">1,234<`,
		`id="sequences">7<`,
		`id="prompt-tokens">80,000<`, `id="reused-tokens">60,000<`, `id="restarts">2<`,
		`15 % of the prompt tokens had been evicted`, `id="pool-wfullh8"`,
		`Device: used 400,000, cached 500,000, free 100,000<`, `Host: used 0, cached 20, free 30<`,
		`<td>evicted</td><td>31</td>`, `<td>onboarded</td><td>11</td>`, `1,000 blocks in 3 nodes`,
		`<section id="lookup-box">`,
		`<section class="wide" id="transfers-box">`, `<section id="latency-box">`,
	} {
		assert.Contains(t, dom, want)
	}
}

// What is drawn has colours, on a screen and on a telephone, on light and on dark ground.
func TestScreenshots(t *testing.T) {
	type rgb = [3]uint32
	const light, dark = "--blink-settings=preferredColorScheme=1",
		"--blink-settings=preferredColorScheme=0"
	at := serve(t, engine{})
	for name, x := range map[string]struct {
		size, scheme       string
		ground, used, free rgb
	}{
		"wide": {"1200,1500", light, rgb{0xf6, 0xf7, 0xf9}, rgb{0xd9, 0x48, 0x0f},
			rgb{0xe4, 0xe8, 0xec}},
		"telephone": {"400,3200", light, rgb{0xf6, 0xf7, 0xf9}, rgb{0xd9, 0x48, 0x0f},
			rgb{0xe4, 0xe8, 0xec}},
		"dark": {"1200,1500", dark, rgb{0x14, 0x16, 0x1a}, rgb{0xff, 0x92, 0x2b},
			rgb{0x2b, 0x30, 0x36}},
	} {
		file := filepath.Join(t.TempDir(), name+".png")
		_, log := browser(t, "--screenshot="+file, "--window-size="+x.size, x.scheme, at+"/?still")
		assert.NotContains(t, log, "CONSOLE")
		colours := map[rgb]int{}
		picture := decoded(t, file)
		for y := picture.Bounds().Min.Y; y < picture.Bounds().Max.Y; y += 2 {
			for x := picture.Bounds().Min.X; x < picture.Bounds().Max.X; x += 2 {
				r, g, b, _ := picture.At(x, y).RGBA()
				colours[rgb{r >> 8, g >> 8, b >> 8}]++
			}
		}
		// The used pages, two priorities, a line of the plots: hundreds of points each.
		assert.Greater(t, colours[x.ground], 300, "%s: the ground", name)
		assert.Greater(t, colours[x.used], 300, "%s: pages in use", name)
		assert.Greater(t, colours[x.free], 300, "%s: free pages", name)
		assert.Greater(t, len(colours), 50, name)
		if to := os.Getenv("SCREENSHOTS"); to != "" { // for those who want to look
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(to, name+".png"), text, 0o644))
		}
	}
}
