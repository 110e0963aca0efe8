# Sends requests to the endpoints that lbd picks: one with a lease, then some from a batch that a long poll updates.
# ruby pick.rb CLUSTER; LBD is the URL of lbd (default http://localhost:8080). Needs only Ruby.
require "erb"
require "json"
require "net/http"

LBD = ENV.fetch("LBD", "http://localhost:8080")
CLUSTER = ERB::Util.url_encode(ARGV.fetch(0))

def call(request)
  answer = Net::HTTP.start(request.uri.host, request.uri.port, read_timeout: 60) { |http| http.request(request) }
  raise IOError, "#{answer.code} #{answer.body}" unless answer.is_a?(Net::HTTPSuccess)
  JSON.parse(answer.body)
end
def get(path) = call(Net::HTTP::Get.new(URI(LBD + path)))
def post(path, body = nil) = call(Net::HTTP::Post.new(URI(LBD + path)).tap { |r| r.body = body && JSON.dump(body) })

def leased # counts as in flight until done: for circuit breaking, or for long requests
  pick = post("/pick?cluster=#{CLUSTER}&ttl=30s")
  outcome = "error"
  yield(pick["address"]).tap { outcome = "success" }
ensure
  post("/v1/leases/#{pick["lease"]["id"]}/done", { outcome: outcome }) if pick
end

def fetch # the cheap way: 100 picks in one answer, again when the cluster changes, and at least every 30 s
  answer = get("/pick?cluster=#{CLUSTER}&n=100")
  refused = answer["dropped"].values.sum + answer["circuit_broken"]
  @turns = (answer["picks"].map { |p| p["address"] } + [nil] * refused).shuffle.cycle # nil: drop this request
  answer["generation"]
end

puts "leased: #{leased { |address| address }}"
generation = fetch
Thread.new do
  loop { get("/v1/clusters/#{CLUSTER}?endpoints=false&index=#{generation}&wait=30s") and generation = fetch }
rescue SystemCallError, IOError, Timeout::Error # lbd is unreachable or refuses: keep using the last batch
  sleep 1 and retry
end
puts "batch: #{3.times.map { @turns.next }.join(" ")}"
