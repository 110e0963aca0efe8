package decode

import typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

// million is the unit of drops, and the most of them.
const million = 1_000_000

// perMillion converts a chance to parts per million, at most all of them.
func (r *report) perMillion(field string, p *typev3.FractionalPercent) uint64 {
	var denominator uint64
	switch p.GetDenominator() {
	case typev3.FractionalPercent_HUNDRED:
		denominator = 100
	case typev3.FractionalPercent_TEN_THOUSAND:
		denominator = 10_000
	case typev3.FractionalPercent_MILLION:
		denominator = million
	default:
		r.refuse(field+".denominator", "is %d, which is none of HUNDRED, TEN_THOUSAND, MILLION", p.GetDenominator())
		return 0
	}
	numerator := uint64(p.GetNumerator())
	if numerator > denominator {
		r.warnByHand(field+".numerator", "is %d of %d: taken as all of them", numerator, denominator)
	}
	return min(numerator*(million/denominator), million)
}
