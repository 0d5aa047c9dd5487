package scripttest
import ("testing";"os";"strconv")
func TestDump(t *testing.T){ s:=os.Getenv("DUMPSEED"); if s=="" {t.Skip()}; n,_:=strconv.ParseUint(s,10,64); os.WriteFile("/tmp/seed.jsonl", Random(n,40), 0644) }
