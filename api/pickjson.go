package api

import (
	"maps"
	"slices"
	"strconv"

	"github.com/lbd-dev/lbd/service/picks"
)

// PickOrPicks documents that the response is a PickAnswer, or a PicksAnswer with n. The
// generator of openapi.yaml makes it a choice of the two.
type PickOrPicks struct {
	PickAnswer  *PickAnswer
	PicksAnswer *PicksAnswer
}

// The following functions write what encoding/json would write for PickAnswer and
// PicksAnswer, without reflection, which would take longer than the pick.

// appendPick appends the first pick as a PickAnswer.
func appendPick(b []byte, p *picks.Picks) []byte {
	b = append(b, `{"cluster":`...)
	b = appendString(b, p.Picks[0].Cluster)
	if p.Target != "" {
		b = append(b, `,"target":`...)
		b = appendString(b, p.Target)
	}
	b = append(b, ',')
	b = appendEndpoint(b, &p.Picks[0])
	b = append(b, `,"generation":`...)
	b = strconv.AppendInt(b, p.Generation, 10)
	return append(b, "}\n"...)
}

// appendPicks appends all picks as a PicksAnswer.
func appendPicks(b []byte, p *picks.Picks) []byte {
	if p.Target == "" {
		b = append(b, `{"cluster":`...)
		b = appendString(b, p.Cluster)
	} else {
		b = append(b, `{"target":`...)
		b = appendString(b, p.Target)
	}
	b = append(b, `,"generation":`...)
	b = strconv.AppendInt(b, p.Generation, 10)
	b = append(b, `,"picks":[`...)
	for i := range p.Picks {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '{')
		if p.Target != "" {
			b = append(b, `"cluster":`...)
			b = appendString(b, p.Picks[i].Cluster)
			b = append(b, ',')
		}
		b = appendEndpoint(b, &p.Picks[i])
		b = append(b, '}')
	}
	b = append(b, `],"dropped":{`...)
	if len(p.Dropped) > 0 {
		for i, category := range slices.Sorted(maps.Keys(p.Dropped)) {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, category)
			b = append(b, ':')
			b = strconv.AppendInt(b, int64(p.Dropped[category]), 10)
		}
	}
	b = append(b, `},"circuit_broken":`...)
	b = strconv.AppendInt(b, int64(p.CircuitBroken), 10)
	return append(b, "}\n"...)
}

// appendEndpoint appends the fields of a PickedEndpoint, without braces.
func appendEndpoint(b []byte, p *picks.Pick) []byte {
	b = append(b, p.Text(fixedFields)...)
	b = append(b, `,"priority":`...)
	b = strconv.AppendInt(b, int64(p.Priority), 10)
	if !p.Lease.ID.IsZero() {
		b = append(b, `,"lease":{"id":"`...)
		b, _ = p.Lease.ID.AppendText(b) // without an error
		b = append(b, `","expires_at":`...)
		b = append(appendTime(b, p.Lease.ExpiresAt), '}')
	}
	if p.Explain != nil {
		b = append(b, `,"explain":`...)
		b = appendValue(b, p.Explain)
	}
	return b
}

// fixedFields returns the fields of a PickedEndpoint that are the same for all picks of an
// endpoint.
func fixedFields(p *picks.Pick) string {
	b := appendString([]byte(`"address":`), p.Address)
	if hostname := p.Hostname(); hostname != "" {
		b = append(b, `,"hostname":`...)
		b = appendString(b, hostname)
	}
	l := p.Locality()
	b = append(b, `,"locality":{"region":`...)
	b = appendString(b, l.Region)
	b = append(b, `,"zone":`...)
	b = appendString(b, l.Zone)
	b = append(b, `,"sub_zone":`...)
	b = appendString(b, l.SubZone)
	return string(append(b, '}'))
}

// appendAddresses appends one address per line.
func appendAddresses(b []byte, p *picks.Picks) []byte {
	for i := range p.Picks {
		b = append(b, p.Picks[i].Address...)
		b = append(b, '\n')
	}
	return b
}
