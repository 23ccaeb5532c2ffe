import ByteStreams
import UpstreamProtocol

/// Everything that can be set, with its defaults. `Setting.all` says how each is named, read and explained.
package struct GatewaySettings: Equatable, Sendable {
  package var listeners = Listeners()
  /// Event loops; 0: as many as there are processors to use.
  package var loops = 0
  package var http = HTTP()
  package var upstream = Upstream()
  package var delivery = Delivery()
  package var shutdown = Shutdown()
  package var log = Log()

  package init() {}

  package struct Listeners: Equatable, Sendable {
    package var http = ["127.0.0.1:8080"]
    package var management = ["127.0.0.1:9090"]
  }

  package struct HTTP: Equatable, Sendable {
    package var hosts: [String] = []
    package var origins: [String] = []
    package var requestLineBytes = 8 << 10
    package var headBytes = 32 << 10
    package var fields = 100
    package var emptyLines = 4
    package var bodyBytes = 16 << 20
    package var pendingBodyBytes = 256 << 20
    package var batchMessages = 1024
    package var chunkExtensionBytes = 256
    package var chunkOverheadBytes = 16 << 10
    package var trailerBytes = 8 << 10
    package var trailers = 32
    package var pipelinedBytes = 64 << 10
    package var headTimeout = TimeSpan.seconds(10)
    package var bodyTimeout = TimeSpan.seconds(30)
    package var bodyMinimumRate = 240
    package var idleTimeout = TimeSpan.seconds(75)
    package var writeTimeout = TimeSpan.seconds(30)
    package var writeMinimumRate = 240
    package var unsentBytes = 256 << 20
    package var lingerTimeout = TimeSpan.seconds(2)
    package var lingerBytes = 1 << 20
    package var requestsPerConnection = 1_000_000
    package var connections = 16_384
    package var connectionsPerAddress = 16_384
    package var managementConnections = 256
  }

  package struct Upstream: Equatable, Sendable {
    package var url = ""
    package var fallbackURLs: [String] = []
    package var urlOrder = "priority"
    package var failBackAfter = TimeSpan.seconds(60)
    package var onDemand = false
    package var idleAfter = TimeSpan.minutes(5)
    /// Zero: never too old.
    package var maximumAge = TimeSpan.zero
    package var overlap = TimeSpan.seconds(1)
    package var closeCodes: [CloseCodeRule] = []
    package var subprotocols: [String] = []
    package var headers: [String] = []
    package var messageBytes = 16 << 20
    package var fragments = 131_072
    package var inflationRatio = 200
    package var proxy = ""
    package var noProxy: [String] = []
    package var tls = TLS()
    package var compression = Compression()
    package var heartbeat = Heartbeat()
    package var reconnect = Reconnect()
    package var dials = Dials()
    package var network = Network()
    package var timeouts = Timeouts()
    package var queue = Queue()
    package var conventions = UpstreamConventions()
    package var payloadCodec = PayloadCodec.raw.rawValue
  }

  package struct TLS: Equatable, Sendable {
    package var caFile = ""
    package var systemCA = true
    package var verify = true
    package var serverName = ""
    package var pins: [String] = []
    package var clientCertificate = ""
    package var clientKey = ""
    package var minimumVersion = "1.2"
  }

  package struct Compression: Equatable, Sendable {
    package var offer = true
    package var level = 6
    package var windowBits = 12
    package var memoryLevel = 5
    package var threshold = 128
  }

  package struct Heartbeat: Equatable, Sendable {
    package var ping = true
    package var interval = TimeSpan.seconds(20)
    package var timeout = TimeSpan.seconds(10)
  }

  package struct Reconnect: Equatable, Sendable {
    package var strategy = "full-jitter"
    package var minimum = TimeSpan.milliseconds(100)
    package var base = TimeSpan.milliseconds(500)
    package var maximum = TimeSpan.seconds(30)
    package var factor = 2.0
    package var whenExhausted = "hold"
    /// 0: any number.
    package var maximumAttempts = 0
    package var quickRedial = TimeSpan.milliseconds(250)
    package var resetAfter = TimeSpan.seconds(10)
  }

  package struct Dials: Equatable, Sendable {
    package var perSecond = 20
    package var burst = 40
    package var atOnce = 64
  }

  package struct Network: Equatable, Sendable {
    package var changes = "watch"
    package var settle = TimeSpan.milliseconds(500)
  }

  package struct Timeouts: Equatable, Sendable {
    package var files = TimeSpan.seconds(5)
    package var resolve = TimeSpan.seconds(5)
    package var connect = TimeSpan.seconds(10)
    package var proxy = TimeSpan.seconds(10)
    package var tls = TimeSpan.seconds(10)
    package var upgrade = TimeSpan.seconds(10)
    package var opening = TimeSpan.seconds(15)
    package var onOpen = TimeSpan.seconds(10)
    package var closing = TimeSpan.seconds(5)
    package var user = TimeSpan.seconds(30)
  }

  package struct Queue: Equatable, Sendable {
    package var messages = 1024
    package var bytes = 4 << 20
    package var ttl = TimeSpan.seconds(30)
    package var overflow = "refuse"
    package var redeliver = "never"
    package var maximumAttempts = 3
    package var confirm = true
    package var confirmMessages = 64
    package var confirmDelay = TimeSpan.milliseconds(20)
    package var rate = 0
    package var rateInterval = TimeSpan.seconds(1)
    package var burst = 1
    package var highWater = 256 << 10
    package var lowWater = 64 << 10
  }

  package struct Delivery: Equatable, Sendable {
    package var messages = 10_000
    package var bytes = 64 << 20
    package var age = TimeSpan.hours(1)
    package var wait = TimeSpan.seconds(25)
    package var maximumWait = TimeSpan.seconds(55)
    package var limit = 100
    package var maximumLimit = 10_000
    package var answerBytes = 1 << 20
    package var maximumAnswerBytes = 64 << 20
  }

  package struct Shutdown: Equatable, Sendable {
    package var flush = TimeSpan.seconds(5)
    package var drain = TimeSpan.seconds(10)
  }

  package struct Log: Equatable, Sendable {
    package var level = "info"
    package var format = "auto"
  }
}
