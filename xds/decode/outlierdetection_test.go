package decode_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

func TestOutlierDetection(t *testing.T) {
	type ejection = resource.OutlierDetection
	as := func(change func(*ejection)) *ejection {
		o := &ejection{
			Interval: 10 * time.Second, BaseEjectionTime: 30 * time.Second, MaxEjectionTime: 300 * time.Second, MaxEjectionPercent: 10,
			SuccessRate: &resource.SuccessRateEjection{StdevFactor: 1900, EnforcementPercentage: 100, MinimumHosts: 5, RequestVolume: 100},
		}
		change(o)
		return o
	}
	const nothing = "outlier_detection: ejects no endpoint: enforcing_success_rate and enforcing_failure_percentage are 0"
	for _, c := range []struct {
		name, config string
		want         *ejection
		byHand       []string // warnings by hand; there are no others
	}{
		{"the defaults", `{}`, as(func(*ejection) {}), nil},
		{
			"times", `{"interval":"1.5s","base_ejection_time":"0s","max_ejection_time":"0s","max_ejection_percent":0}`,
			as(func(o *ejection) {
				o.Interval, o.BaseEjectionTime, o.MaxEjectionTime, o.MaxEjectionPercent = 1500*time.Millisecond, 0, 0, 0
			}), nil,
		},
		{
			"success rate", `{"enforcing_success_rate":1,"success_rate_stdev_factor":2,"success_rate_minimum_hosts":3,"success_rate_request_volume":4}`,
			as(func(o *ejection) {
				*o.SuccessRate = resource.SuccessRateEjection{StdevFactor: 2, EnforcementPercentage: 1, MinimumHosts: 3, RequestVolume: 4}
			}), nil,
		},
		{
			"success rate of zeros", `{"success_rate_stdev_factor":0,"success_rate_minimum_hosts":0,"success_rate_request_volume":0}`,
			as(func(o *ejection) { *o.SuccessRate = resource.SuccessRateEjection{EnforcementPercentage: 100} }), nil,
		},
		{
			"success rate not enforced", `{"enforcing_success_rate":0,"success_rate_stdev_factor":2}`,
			as(func(o *ejection) { o.SuccessRate = nil }),
			[]string{nothing},
		},
		{"failure percentage not enforced", `{"enforcing_failure_percentage":0,"failure_percentage_threshold":1}`, as(func(*ejection) {}), nil},
		{
			"failure percentage", `{"enforcing_failure_percentage":7}`,
			as(func(o *ejection) {
				o.FailurePercentage = &resource.FailurePercentageEjection{Threshold: 85, EnforcementPercentage: 7, MinimumHosts: 5, RequestVolume: 50}
			}), nil,
		},
		{
			"failure percentage in all",
			`{"enforcing_success_rate":0,"enforcing_failure_percentage":100,"failure_percentage_threshold":0,"failure_percentage_minimum_hosts":0,"failure_percentage_request_volume":8}`,
			as(func(o *ejection) {
				o.SuccessRate, o.FailurePercentage = nil, &resource.FailurePercentageEjection{EnforcementPercentage: 100, RequestVolume: 8}
			}), nil,
		},
		{
			"what only Envoy has", `{"consecutive_5xx":3,"max_ejection_time_jitter":"1s"}`, as(func(*ejection) {}),
			[]string{"outlier_detection.consecutive_5xx: is not applied: endpoints are ejected by success rate and failure percentage only", "outlier_detection.max_ejection_time_jitter: is not applied"},
		},
	} {
		for _, origin := range []decode.Origin{decode.ByHand, decode.FromServer} {
			t.Run(fmt.Sprintf("%d/%s", origin, c.name), func(t *testing.T) {
				d := accept(t, resource.TypeCluster, eds(`"outlier_detection":`+c.config), decode.Options{Origin: origin})
				if got := d.Cluster.OutlierDetection; !reflect.DeepEqual(got, c.want) {
					t.Errorf("%+v %+v %+v, want %+v %+v %+v", got, got.SuccessRate, got.FailurePercentage, c.want, c.want.SuccessRate, c.want.FailurePercentage)
				}
				want := c.byHand
				if origin == decode.FromServer {
					want = nil
				}
				expect(t, "warnings", lines(d.Warnings), want)
			})
		}
	}
}

// An analysis without pause between would do nothing else.
func TestOutlierDetectionNeedsAnInterval(t *testing.T) {
	body := []byte(eds(`"outlier_detection":{"interval":"0s"}`))
	_, err := decode.One(resource.TypeCluster, body, decode.Options{})
	if got := refusals(t, err, "Cluster/orders"); !reflect.DeepEqual(got, []string{"outlier_detection.interval: is 0s: it must be longer"}) {
		t.Errorf("refusals %q", got)
	}
	d, err := decode.One(resource.TypeCluster, body, decode.Options{Origin: decode.FromServer})
	if err != nil || d.Cluster.OutlierDetection.Interval != 0 {
		t.Errorf("decoded %+v, %v", d, err)
	}
}

// TestNothingIsEjectedFromUnderPickFirst: a config that demands it gets a warning.
func TestNothingIsEjectedFromUnderPickFirst(t *testing.T) {
	const (
		warning = "outlier_detection: ejects no endpoint: pick_first keeps to the one that it has"
		nothing = "outlier_detection: ejects no endpoint: enforcing_success_rate and enforcing_failure_percentage are 0"
	)
	for _, c := range []struct{ name, config, policy, want string }{
		{"alone", `{}`, policy(pickFirst), warning},
		{"within localities", `{}`, within(policy(pickFirst)), warning},
		{"by another algorithm", `{"enforcing_success_rate":0,"enforcing_failure_percentage":1}`, policy(pickFirst), warning},
		{"nor otherwise: one warning is enough", `{"enforcing_success_rate":0}`, policy(pickFirst), nothing},
		{"another policy", `{}`, policy(roundRobin), ""},
		{"another within localities", `{}`, within(policy(roundRobin)), ""},
	} {
		for _, origin := range []decode.Origin{decode.ByHand, decode.FromServer} {
			t.Run(fmt.Sprintf("%d/%s", origin, c.name), func(t *testing.T) {
				body := eds(`"outlier_detection":`+c.config, choose(policies(c.policy)))
				d := accept(t, resource.TypeCluster, body, decode.Options{Origin: origin, Policies: grpcs})
				want := c.want
				if origin == decode.FromServer {
					want = ""
				}
				if got := strings.Join(lines(d.Warnings), "\n"); got != want {
					t.Errorf("warnings %q, want %q", got, want)
				}
			})
		}
	}
}
