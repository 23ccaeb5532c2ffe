import ByteStreams
import Consumers
import HTTPCodec
import Profiles

/// A webhook of the configuration: a consumer whose worker is the gateway.
package struct WebhookSettings: Equatable, Sendable {
  /// The name of the consumer.
  package let name: String
  package let url: HTTPURL
  /// Each request is signed with all secrets, so that they can be replaced one after another.
  package var secrets: [WebhookSecret] = []
  /// The topics as written; empty for all pushes.
  package var topics: [String] = []
  /// Maximum number of requests at a time.
  package var concurrency = 1
  /// Used only if `concurrency` is above 1. With 1, all pushes are handled in order.
  package var order: ConsumerOrder?
  /// Maximum time of an attempt, from the lookup of the name to the end of the response.
  package var timeout = TimeSpan.seconds(20)
  /// The wait after each failed attempt. If the attempt after the last wait fails, too, the push becomes a dead letter.
  package var retries: [TimeSpan] = WebhookSettings.defaultRetries
  /// A push that is older than this is not attempted again.
  package var giveUpAfter = TimeSpan.hours(24)
  /// The addresses to which connections are allowed.
  package var rules = WebhookSettings.publicOnly
  /// The path of a PEM file of authorities that are trusted in addition to the system's; empty if there is no such
  /// file.
  package var caFile = ""

  package init(name: String, url: HTTPURL) {
    self.name = name
    self.url = url
  }

  /// The schedule that Standard Webhooks recommends.
  package static let defaultRetries: [TimeSpan] = [
    .seconds(5), .minutes(5), .minutes(30), .hours(2), .hours(5), .hours(10),
  ]
  /// The accepted numbers of waits. Together with the attempts that `Retry-After` adds, the attempts stay within the
  /// number that a consumer allows.
  package static let retryCounts = 0...20
  /// The accepted waits. The upper limit, with jitter, is the longest delay of a released push.
  package static let retryTimes = TimeSpan.milliseconds(10)...TimeSpan.hours(20)
  /// Each request needs a connection. A receiver that needs more concurrency can acknowledge at once and work later.
  package static let concurrencies = 1...64
  package static let timeouts = TimeSpan.milliseconds(100)...TimeSpan.minutes(5)
  package static let giveUpTimes = TimeSpan.seconds(1)...TimeSpan.hours(24 * 365)
  /// Maximum number of secrets. Each adds a signature to each request; a rotation needs two.
  package static let maximumSecrets = 5
  /// Maximum number of webhooks per session. Each has connections of its own.
  package static let maximumCount = 100

  /// Maximum bytes of a webhook's pushes in progress, as JSON. A larger push is delivered alone.
  package static let bytesInProgress = 16 << 20

  /// The maximum memory of the webhook's requests, in bytes.
  ///
  /// - Parameter messageBytes: maximum size of a push.
  package func memory(messageBytes: Int) -> Int {
    min(concurrency * messageBytes, Self.bytesInProgress + messageBytes)
  }

  private static var publicOnly: ConnectionRules {
    var rules = ConnectionRules()
    rules.owner = "the webhook"
    return rules
  }

  /// How much longer a lease lasts than the timeout of its attempt, so that no second attempt begins during the first
  /// attempt.
  private static let leaseMargin = TimeSpan.seconds(10)

  /// The settings of the webhook's consumer.
  package var consumer: ConsumerSettings {
    var consumer = ConsumerSettings()
    consumer.isWorkSharing = true
    consumer.isWebhook = true
    consumer.visibility = timeout + Self.leaseMargin
    // The schedule limits the attempts. This value limits the attempts after `Retry-After`, which the schedule does not
    // count.
    consumer.maximumDeliveries = ConsumerSettings.deliveries.upperBound
    consumer.order = concurrency == 1 ? .all : order
    for topic in topics { _ = consumer.add(topic: Array(topic.utf8)) }
    return consumer
  }
}
