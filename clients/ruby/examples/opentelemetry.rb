# frozen_string_literal: true

require "opentelemetry"

# Makes a span of each try of a request, a child of the current one:
#
#     tracer = OpenTelemetry.tracer_provider.tracer("lbd")
#     LBD = Lbd::Client.new(on_attempt: Spans.new(tracer))
class Spans
  def initialize(tracer)
    @tracer = tracer
  end

  def call(attempt)
    ended = Time.now
    attributes = attributes(attempt)
    span = @tracer.start_span(attributes["http.request.method"], kind: :client, attributes: attributes,
                                                                 start_timestamp: ended - attempt.duration)
    span.status = OpenTelemetry::Trace::Status.error if attributes.key?("error.type")
    span.finish(end_timestamp: ended)
  end

  private

  def attributes(attempt)
    choice, status = attempt.choice, attempt.status
    host, _, port = choice.address.rpartition(":")
    failure = status ? (status.to_s if status >= 400) : attempt.outcome.to_s
    {
      "http.request.method" => attempt.request.method.to_s.upcase,
      "server.address" => attempt.url.hostname, "server.port" => attempt.url.port,
      "network.peer.address" => host.delete("[]"), "network.peer.port" => Integer(port),
      "http.response.status_code" => status, "error.type" => failure,
      "http.request.resend_count" => (choice.attempt - 1 if choice.attempt > 1),
      "lbd.cluster" => choice.cluster
    }.compact
  end
end
