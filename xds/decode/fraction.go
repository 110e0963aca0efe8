package decode

import typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

// million is the unit of drops and of the fractions of requests.
const million = 1_000_000

var denominators = map[typev3.FractionalPercent_DenominatorType]uint64{
	typev3.FractionalPercent_HUNDRED: 100, typev3.FractionalPercent_TEN_THOUSAND: 10_000, typev3.FractionalPercent_MILLION: million,
}

// perMillion converts a fraction to parts per million, at most all of them.
func (r *report) perMillion(field string, p *typev3.FractionalPercent) uint64 {
	denominator := denominators[p.GetDenominator()]
	if denominator == 0 {
		r.reject(field+".denominator", "is %d, which is none of HUNDRED, TEN_THOUSAND, MILLION", p.GetDenominator())
		return 0
	}
	numerator := uint64(p.GetNumerator())
	if numerator > denominator {
		r.warnByHand(field+".numerator", "is %d of %d: taken as all of them", numerator, denominator)
	}
	return min(numerator*(million/denominator), million)
}
