package decode

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/lbd-dev/lbd/xds/resource"
)

// outlierDetection validates outlier_detection, and fills in its defaults (gRFC A50). What
// is not enforced is validated too. p is the cluster's policy.
func (v clusterValidator) outlierDetection(m *clusterv3.OutlierDetection, p resource.Policy) *resource.OutlierDetection {
	if m == nil {
		return nil
	}
	o := &resource.OutlierDetection{
		Interval:           v.period(m.GetInterval(), "interval", 10*time.Second),
		BaseEjectionTime:   v.period(m.GetBaseEjectionTime(), "base_ejection_time", 30*time.Second),
		MaxEjectionTime:    v.period(m.GetMaxEjectionTime(), "max_ejection_time", 300*time.Second),
		MaxEjectionPercent: v.percent(m.GetMaxEjectionPercent(), "max_ejection_percent", 10),
	}
	if v.byHand && m.GetInterval() != nil && o.Interval == 0 {
		v.reject("outlier_detection.interval", "is 0s: it must be longer")
	}
	rate := &resource.SuccessRateEjection{
		StdevFactor:           or(m.GetSuccessRateStdevFactor(), 1900),
		EnforcementPercentage: v.percent(m.GetEnforcingSuccessRate(), "enforcing_success_rate", 100),
		MinimumHosts:          or(m.GetSuccessRateMinimumHosts(), 5),
		RequestVolume:         or(m.GetSuccessRateRequestVolume(), 100),
	}
	if rate.EnforcementPercentage > 0 {
		o.SuccessRate = rate
	}
	failure := &resource.FailurePercentageEjection{
		Threshold:             v.percent(m.GetFailurePercentageThreshold(), "failure_percentage_threshold", 85),
		EnforcementPercentage: v.percent(m.GetEnforcingFailurePercentage(), "enforcing_failure_percentage", 0),
		MinimumHosts:          or(m.GetFailurePercentageMinimumHosts(), 5),
		RequestVolume:         or(m.GetFailurePercentageRequestVolume(), 50),
	}
	if failure.EnforcementPercentage > 0 {
		o.FailurePercentage = failure
	}
	traits := v.Options.policy(p.Endpoint())
	switch {
	case o.SuccessRate == nil && o.FailurePercentage == nil:
		v.warnByHand("outlier_detection", "ejects no endpoint: enforcing_success_rate and enforcing_failure_percentage are 0")
	case traits != nil && traits.KeepsEndpoint: // gRFC A61
		v.warnByHand("outlier_detection", "ejects no endpoint: %s keeps to the one that it has", p.Endpoint())
	}
	return o
}

// period validates a duration of outlier_detection, which must not be negative.
func (v clusterValidator) period(d *durationpb.Duration, name string, absent time.Duration) time.Duration {
	if d == nil {
		return absent
	}
	if err := d.CheckValid(); err != nil {
		v.reject("outlier_detection."+name, "is no duration: %s", plain(err))
	} else if d.AsDuration() < 0 {
		v.reject("outlier_detection."+name, "is negative")
	}
	return d.AsDuration()
}

func (v clusterValidator) percent(n *wrapperspb.UInt32Value, name string, absent uint32) uint32 {
	if n.GetValue() > 100 {
		v.reject("outlier_detection."+name, "is %d: it must be at most 100", n.GetValue())
	}
	return or(n, absent)
}

func or(n *wrapperspb.UInt32Value, absent uint32) uint32 {
	if n == nil {
		return absent
	}
	return n.GetValue()
}
