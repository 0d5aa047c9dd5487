package windows

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvactor/kvactor/internal/protocol"
)

// TestQuotasArePagesRoundedDown, by the decimal that the host wrote.
func TestQuotasArePagesRoundedDown(t *testing.T) {
	c := Config{SaltQuotas: map[string]float64{"b": 0.29, "a": 0.1}, OtherSaltsQuota: 0.7}
	quotas := c.Quotas()
	assert.Equal(t, map[string]protocol.Tenant{"a": 1, "b": 2}, c.Tenants())
	for total, want := range map[int][]int{100: {70, 10, 29}, 10: {7, 1, 2}, 1: {0, 0, 0},
		0: {0, 0, 0}, MaxPages: {MaxPages / 10 * 7, MaxPages / 10, 0}} {
		for tenant, q := range quotas {
			if total == MaxPages {
				require.InDelta(t, c.share(tenant)*MaxPages, q.Pages(total), 1)
				continue
			}
			assert.Equal(t, want[tenant], q.Pages(total), "tenant %d of %d pages", tenant, total)
		}
	}
}

func (c Config) share(tenant int) float64 {
	return []float64{c.OtherSaltsQuota, c.SaltQuotas["a"], c.SaltQuotas["b"]}[tenant]
}

// TestNoQuotasAreNoAccounts: what is not asked for costs nothing.
func TestNoQuotasAreNoAccounts(t *testing.T) {
	for _, c := range []Config{DefaultConfig(), {SaltQuotas: map[string]float64{}}} {
		assert.Nil(t, c.Quotas())
		assert.Nil(t, c.Tenants())
	}
	only := Config{OtherSaltsQuota: 0.5}
	assert.Equal(t, []Quota{NoQuota / 2}, only.Quotas())
	assert.Equal(t, protocol.OtherTenants, only.Tenants()["anyone"])
	named := Config{SaltQuotas: map[string]float64{"a": 1}}
	assert.Equal(t, []Quota{NoQuota, NoQuota}, named.Quotas(),
		"the others have no bound unless they are given one")
}

func TestQuotasRefused(t *testing.T) {
	model := Presets()["Llama-3.2-1B"].Model
	many := map[string]float64{}
	for i := range MaxSaltQuotas + 1 {
		many[fmt.Sprint("tenant-", i)] = 0.5
	}
	cases := map[string]func(*Config){
		`salt_quotas has an empty salt; requests without one are among other_salts_quota`: func(
			c *Config) {
			c.SaltQuotas = map[string]float64{"": 0.5}
		},
		`salt_quotas of "a": 0 is not greater than 0 and at most 1`: func(
			c *Config) {
			c.SaltQuotas = map[string]float64{"a": 0}
		},
		`salt_quotas of "a": 1.5 is not greater than 0 and at most 1; ` +
			`salt_quotas of "b": NaN is not greater than 0 and at most 1`: func(c *Config) {
			c.SaltQuotas = map[string]float64{"b": math.NaN(), "a": 1.5}
		},
		`other_salts_quota -1 is not greater than 0 and at most 1`: func(
			c *Config) {
			c.OtherSaltsQuota = -1
		},
		`salt_quotas has 1025 salts, more than 1024`: func(
			c *Config) {
			c.SaltQuotas = many
		},
	}
	for want, change := range cases {
		c := DefaultConfig()
		change(&c)
		assert.EqualError(t, c.Validate(model), want)
	}
	c := DefaultConfig()
	c.SaltQuotas, c.OtherSaltsQuota = map[string]float64{"a": 1, "b": 0.75}, 0.5
	assert.NoError(t, c.Validate(model), "they may add up to more than 1")
}
