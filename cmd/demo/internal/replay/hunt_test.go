package replay
import ("testing";"fmt")
func TestHunt(t *testing.T) {
	bad := 0
	for seed := range uint64(60) {
		path := generate(t, 60, 100+seed)
		longest, _ := shape(t, path)
		c := config(path, 3*longest)
		c.Spawn, c.HostPages = nil, 3*longest
		r, _, err := Serve(t.Context(), c)
		if err != nil || len(r.Problems) > 0 { bad++; fmt.Println(seed, err); if r != nil { fmt.Println(r.Problems[0]) } }
	}
	fmt.Println("bad", bad)
}
