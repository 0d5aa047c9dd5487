package windows

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kvactor/kvactor/internal/protocol"
)

// MaxSaltQuotas is how many salts may have quotas: less than a thousandth of a
// cache is of no use, and the bookkeeping of a quota takes about a hundred bytes in
// each pool.
const MaxSaltQuotas = 1024

// Quota is a tenant's share of the pages of each tier of each pool, in units of
// 10⁻¹². It is an integer because page counts are part of answers and must not
// depend on how a compiler rounds. NoQuota is all pages, which is no bound.
type Quota uint64

// NoQuota is the quota of a tenant without one.
const NoQuota Quota = decimalUnit

// Pages is the quota in pages of a pool with so many, rounded down.
func (q Quota) Pages(total int) int { return int(mulDiv(uint64(total), uint64(q), decimalUnit)) }

// Quotas returns the quotas by protocol.Tenant, nil if there are none. Tenants
// are numbered in the order of their salts.
func (c Config) Quotas() []Quota {
	if !c.hasQuotas() {
		return nil
	}
	quotas := []Quota{NoQuota}
	if c.OtherSaltsQuota > 0 {
		quotas[protocol.OtherTenants] = Quota(units(c.OtherSaltsQuota))
	}
	for _, salt := range slices.Sorted(maps.Keys(c.SaltQuotas)) {
		quotas = append(quotas, Quota(units(c.SaltQuotas[salt])))
	}
	return quotas
}

// Tenants returns the tenant of each salt that has a quota, nil if there are no
// quotas. All other salts belong to protocol.OtherTenants.
func (c Config) Tenants() map[string]protocol.Tenant {
	if !c.hasQuotas() {
		return nil
	}
	tenants := make(map[string]protocol.Tenant, len(c.SaltQuotas))
	for i, salt := range slices.Sorted(maps.Keys(c.SaltQuotas)) {
		tenants[salt] = protocol.OtherTenants + 1 + protocol.Tenant(i)
	}
	return tenants
}

func (c Config) hasQuotas() bool { return len(c.SaltQuotas) > 0 || c.OtherSaltsQuota > 0 }

// quotaProblems checks the quotas. Their sum may exceed 1; they are upper
// bounds only then.
func (c Config) quotaProblems(ps *problems) {
	if n := len(c.SaltQuotas); n > MaxSaltQuotas {
		ps.say("salt_quotas has %d salts, more than %d", n, MaxSaltQuotas)
		return
	}
	for _, salt := range slices.Sorted(maps.Keys(c.SaltQuotas)) {
		if salt == "" {
			ps.say("salt_quotas has an empty salt; requests without one are among other_salts_quota")
		}
		ps.part(c.SaltQuotas[salt], fmt.Sprintf("salt_quotas of %q:", salt))
	}
	if c.OtherSaltsQuota != 0 {
		ps.part(c.OtherSaltsQuota, "other_salts_quota")
	}
}
