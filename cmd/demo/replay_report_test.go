package main

import (
	"context"
	"encoding/json"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// embedded is the JSON of a page.
var embedded = regexp.MustCompile(`(?s)<script type="application/json" id="data">(.*?)</script>`)

// TestReportHasTheNumbersOfJSON: the replays in the page are the lines that --json prints.
func TestReportHasTheNumbersOfJSON(t *testing.T) {
	path, file := rounds(t, 60), filepath.Join(t.TempDir(), "out.html")
	args := []string{"replay", path, "--json", "--policy", "priority_lru,forecast,optimal", "--atomic",
		"--timed", "--pages", "12,20", "--report", file}
	status, out, errs := command(t, "", args...)
	require.Zero(t, status, errs)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	found := embedded.FindSubmatch(text)
	require.NotNil(t, found)
	var data struct {
		Origin  struct{ Command string }
		Replays []json.RawMessage
		LRU     []struct {
			Blocks int
			Hits   int64 `json:"hit_blocks"`
		} `json:"lru"`
	}
	require.NoError(t, json.Unmarshal(found[1], &data))
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 10)
	require.Len(t, data.Replays, len(lines))
	for i, line := range lines {
		assert.JSONEq(t, line, string(data.Replays[i]))
		var r struct {
			Policy, Mode string
			Pages        int
			Hits         int64 `json:"hit_blocks"`
			OverTime     []any `json:"over_time"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		assert.Len(t, r.OverTime, reportIntervals)
		for _, p := range data.LRU {
			if p.Blocks == r.Pages && r.Policy == "priority_lru" && r.Mode == "atomic" {
				assert.Equal(t, p.Hits, r.Hits, "the engine hits what the distances say")
			}
		}
	}
	assert.Equal(t,
		"demo replay "+path+
			" --atomic --json --pages 12,20 --policy priority_lru,forecast,optimal --report "+file+
			" --timed", data.Origin.Command)
}

// TestImagesAndTerminalPlots: one image of all plots, or one each; and plots in characters.
func TestImagesAndTerminalPlots(t *testing.T) {
	path, folder := rounds(t, 30), t.TempDir()
	sheet, each := filepath.Join(folder, "all.png"), filepath.Join(folder, "each")
	targets, images := []string{sheet}, []string{sheet}
	if !testing.Short() { // the race detector makes drawing dots slow
		targets = append(targets, each)
		images = append(images, filepath.Join(each, "bytes.png"),
			filepath.Join(each, "hit-rate-by-capacity.png"))
	}
	for _, to := range targets {
		status, out, errs := command(t, "", "replay", path, "--pages", "12", "--host-pages", "12",
			"--png", to, "--plot")
		require.Zero(t, status, errs)
		assert.NotContains(t, out, "\x1b", "codes of colours in what is no terminal")
		for _, want := range []string{"Hit rate against capacity", "Reuse distance",
			"Where the engine's time goes"} {
			assert.Contains(t, out, want)
		}
	}
	for _, name := range images {
		file, err := os.Open(name)
		require.NoError(t, err)
		_, err = png.Decode(file)
		require.NoError(t, err)
		require.NoError(t, file.Close())
	}
}

// TestReportsThatCannotBeWritten: the path is looked at before anything is replayed.
func TestReportsThatCannotBeWritten(t *testing.T) {
	path, folder := rounds(t, 30), t.TempDir()
	for want, args := range map[string][]string{
		"--report: open":   {"--report", filepath.Join(folder, "none", "x.html")},
		"is a directory":   {"--report", folder},
		"--png: open":      {"--png", filepath.Join(folder, "none", "x.png")},
		"neither a folder": {"--png", filepath.Join(folder, "x.jpg")},
		"nor a file.png":   {"--png", path},
		"not a directory":  {"--png", filepath.Join(path, "x")},
		"no such file or d": {"--report", filepath.Join(folder, "none", "x.html"), "--policy",
			"priority_lru,forecast"},
	} {
		status, out, errs := command(t, "", append([]string{"replay", path}, args...)...)
		assert.Equal(t, 1, status)
		assert.Empty(t, out)
		assert.Contains(t, errs, want)
		assert.NotContains(t, errs, "requests")
	}
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	assert.Empty(t, entries)
}

// TestReportInABrowser looks at the page in a real browser: it loads without a message on the
// console, and it has the colours of light and dark, on a wide and a narrow window.
func TestReportInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser takes some seconds")
	}
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium on this machine")
	}
	folder := t.TempDir()
	page := filepath.Join(folder, "out.html")
	status, _, errs := command(t, "", "replay", rounds(t, 60), "--pages", "12", "--host-pages", "9",
		"--report", page)
	require.Zero(t, status, errs)
	colors := map[string]int{}
	for name, args := range map[string][]string{
		"light": {"--window-size=1200,1600"}, "dark": {"--window-size=1200,1600", "--force-dark-mode",
			"--blink-settings=preferredColorScheme=0"}, "phone": {"--window-size=500,3000"},
	} {
		shot := filepath.Join(folder, name+".png")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		c := exec.CommandContext(ctx, chromium, append(args,
			"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
			"--enable-logging=stderr",
			"--user-data-dir="+filepath.Join(folder, "profile-"+name), "--screenshot="+shot,
			"file://"+page)...)
		log, err := c.CombinedOutput()
		cancel()
		if err != nil {
			t.Skipf("chromium does not run here: %v", err)
		}
		assert.NotContains(t, string(log), "CONSOLE")
		file, err := os.Open(shot)
		require.NoError(t, err)
		picture, err := png.Decode(file)
		require.NoError(t, err)
		require.NoError(t, file.Close())
		for y := 0; y < picture.Bounds().Max.Y; y += 2 {
			for x := 0; x < picture.Bounds().Max.X; x += 2 {
				r, g, b, _ := picture.At(x, y).RGBA()
				switch [3]uint32{r >> 8, g >> 8, b >> 8} {
				case [3]uint32{0x2A, 0x78, 0xD6}: // blue of bars on light
					colors[name]++
				case [3]uint32{0x1A, 0x1A, 0x19}: // the dark background
					colors[name+" dark"]++
				}
			}
		}
	}
	assert.Greater(t, colors["light"], 2000)
	assert.Greater(t, colors["phone"], 1000)
	assert.Zero(t, colors["dark"])
	assert.Greater(t, colors["dark dark"], 2000)
}
