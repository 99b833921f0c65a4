"""What requests are drawn from."""

SQL_SYSTEM = "You write SQLite queries and explain them in one sentence."
SQL_EXAMPLES = (
    (
        "Schema: CREATE TABLE pets (id INTEGER PRIMARY KEY, name TEXT, kind TEXT, weight REAL);\n"
        "Question: What is the average weight for each kind, without the kind 'cat'?",
        "```sql\nSELECT kind, AVG(weight) AS average_weight\nFROM pets\nWHERE kind <> 'cat'\nGROUP BY kind\n"
        "ORDER BY kind;\n```\nThis query selects the average weight of the pets for each kind, without the kind 'cat'.",
    ),
    (
        "Schema: CREATE TABLE towns (id INTEGER PRIMARY KEY, name TEXT, people INTEGER);\n"
        "Question: List the name of the 3 towns with the highest people.",
        "```sql\nSELECT name, people\nFROM towns\nORDER BY people DESC\nLIMIT 3;\n```\n"
        "This query selects the name of the 3 towns with the highest people.",
    ),
)
GERMAN_SYSTEM = "Du bist ein freundlicher Assistent und schreibst immer auf Deutsch."
GERMAN_EXAMPLES = (
    (
        "Warum ist das Meer in Stralsund wichtig?",
        "Das Meer ist für die Menschen in Stralsund sehr wichtig. Viele Familien leben seit langer Zeit von den "
        "Schiffen und dem Hafen. Im Sommer kommen viele Gäste, und die Kinder spielen am Strand. Deshalb wird das "
        "Wasser gut geschützt.",
    ),
    (
        "Schreibe eine kurze Geschichte über einen Hund in Weimar.",
        "Es war einmal ein kleiner Hund in Weimar. Er lebte mit einer alten Frau in einem Haus am Park. Jeden "
        "Morgen gingen die beiden zum Markt, und die Kinder gaben ihm ein Stück Wurst. Der Hund war sehr glücklich.",
    ),
)
JSON_SYSTEM = "You turn messages about orders into JSON objects."
JSON_EXAMPLES = (
    (
        "Peter Young from London ordered 12 tea pots on 2026-03-04 and paid 17.50 dollars for each.",
        '```json\n{\n  "customer": {\n    "first_name": "Peter",\n    "last_name": "Young",\n    "city": "London"\n'
        '  },\n  "order": {\n    "product": "tea pots",\n    "quantity": 12,\n    "price": 17.50,\n'
        '    "date": "2026-03-04"\n  }\n}\n```',
    ),
)

CHAT_PATTERNS = (
    "Can you explain {topic} to {reader}?",
    "What should {reader} know about {topic}?",
    "Give {reader} three tips about {topic}.",
    "Why do people care about {topic}? I am asking for {reader}.",
    "What are common mistakes with {topic}, especially for {reader}?",
    "How would you introduce {topic} to {reader} in one paragraph?",
    "Write a short story about {topic} for {reader}.",
    "What is surprising about {topic}? Answer for {reader}.",
    "How did {topic} change over time? Keep it simple for {reader}.",
    "Describe a day in the life of {reader} that has to do with {topic}.",
    "Compare {topic} today with {topic} a hundred years ago, for {reader}.",
    "What would {reader} ask an expert about {topic}?",
)
TOPICS = (
    "growing tomatoes", "the water cycle", "saving money", "playing chess", "black holes", "baking bread", "bicycles",
    "learning a language", "the stock market", "honey bees", "sleep", "volcanoes", "public speaking", "coral reefs",
    "electric cars", "the Roman Empire", "drawing portraits", "vaccines", "camping", "jazz", "whales", "time zones",
    "recycling", "photography", "the moon landing", "good coffee", "running a marathon", "dinosaurs", "meditation",
    "the printing press", "compost", "solar panels", "earthquakes", "writing poems", "the immune system", "sailing",
    "fermented food", "the Silk Road", "robots", "antibiotics", "knitting", "glaciers", "board games", "lighthouses",
    "owls", "steam engines", "passwords", "rainforests", "tea", "maps",
)  # fmt: skip
READERS = (
    "a child", "a beginner", "my grandmother", "a student", "a busy manager", "a teacher", "a traveller", "a farmer",
    "an engineer", "a nurse", "a new neighbour", "a curious teenager", "a shop owner", "a retired sailor", "a cook",
    "a young parent", "a librarian",
)  # fmt: skip

TABLES = {
    "orders": "customer TEXT, city TEXT, product TEXT, amount REAL, quantity INTEGER, order_date TEXT",
    "employees": "name TEXT, department TEXT, salary REAL, age INTEGER, hire_date TEXT, office TEXT",
    "flights": "airline TEXT, origin TEXT, destination TEXT, price REAL, delay_minutes INTEGER, seats INTEGER",
    "books": "title TEXT, author TEXT, genre TEXT, price REAL, pages INTEGER, year INTEGER",
    "patients": "name TEXT, ward TEXT, doctor TEXT, age INTEGER, weight REAL, admission_date TEXT",
    "sensors": "location TEXT, model TEXT, temperature REAL, humidity REAL, battery INTEGER, measured_at TEXT",
    "songs": "title TEXT, artist TEXT, album TEXT, duration INTEGER, plays INTEGER, rating REAL",
    "houses": "street TEXT, city TEXT, price REAL, rooms INTEGER, area REAL, year_built INTEGER",
    "invoices": "customer TEXT, status TEXT, total REAL, tax REAL, due_date TEXT, items INTEGER",
    "players": "name TEXT, team TEXT, position TEXT, goals INTEGER, salary REAL, age INTEGER",
    "courses": "title TEXT, teacher TEXT, room TEXT, credits INTEGER, students INTEGER, fee REAL",
    "trucks": "driver TEXT, depot TEXT, plate TEXT, load REAL, distance REAL, year INTEGER",
}
SQL_QUESTIONS = (
    "How many {table} have the {text} '{value}'?",
    "What is the average {number} of all {table} with the {text} '{value}'?",
    "List the {text} of the {limit} {table} with the highest {number}.",
    "Which {table} have a {number} above {limit}? Order them by {text}.",
    "What is the total {number} for each {text}?",
    "Show all {table} whose {text} starts with '{value}' and whose {number} is below {limit}.",
    "For each {text}, how many {table} have a {number} of at least {limit}?",
    "What is the smallest {number} among {table} whose {text} is not '{value}'?",
    "Delete all {table} with the {text} '{value}' and a {number} below {limit}.",
    "Set the {number} to {limit} for all {table} with the {text} '{value}'.",
)
VALUES = (
    "Alpha", "Berlin", "Carter", "Delta", "East", "Fischer", "Green", "Harbor", "Iris", "Jones", "Kepler", "London",
    "Miller", "North", "Oslo", "Paris", "Quinn", "Red", "Stone", "Tokyo", "Union", "Vega", "West", "Xenon", "York",
)  # fmt: skip

GERMAN_PATTERNS = (
    "Was sollte man über {topic} in {place} wissen?",
    "Erkläre bitte, warum {topic} in {place} wichtig ist.",
    "Nenne drei Tipps zum Thema {topic} für einen Besuch in {place}.",
    "Schreibe eine kurze Geschichte über {topic} in {place}.",
    "Wie hat sich {topic} in {place} in den letzten hundert Jahren verändert?",
    "Welche Fehler machen viele Menschen beim Thema {topic} in {place}?",
    "Beschreibe einen Tag in {place}, an dem es um {topic} geht.",
    "Was ist das Besondere an {topic} in {place}?",
    "Wie würdest du einem Kind in {place} das Thema {topic} erklären?",
    "Schreibe einen kurzen Brief an einen Freund in {place} über {topic}.",
)
GERMAN_TOPICS = (
    "Brot", "Fahrräder", "Musik", "Wasser", "Geschichte", "Kaffee", "Gärten", "Schulen", "Züge", "Märkte", "Wälder",
    "Sport", "Bücher", "Wetter", "Theater", "Brücken", "Feste", "Handwerk", "Energie", "Tiere", "Kunst", "Technik",
    "Gesundheit", "Familien", "Arbeit", "Ferien",
)  # fmt: skip
GERMAN_PLACES = (
    "Berlin", "Hamburg", "München", "Köln", "Wien", "Zürich", "Leipzig", "Dresden", "Bremen", "Freiburg", "Salzburg",
    "Basel", "Bonn", "Kiel", "Mainz", "Graz", "Ulm", "Jena", "Rostock", "Erfurt", "Bern", "Innsbruck", "Trier",
    "Kassel", "Lübeck", "Potsdam",
)  # fmt: skip

ORDERS = (
    "{name} from {city} ordered {quantity} {product} on {date} and paid {price} dollars for each.",
    "Hello, this is {name}. Please send {quantity} {product} to {city}. The price was {price}, the date is {date}.",
    "On {date} we received {quantity} {product} from {name} in {city}, at a price of {price}.",
    "Note of {date}: customer {name}, {city}, wants {quantity} {product}; agreed price {price}.",
    "Dear team, I would like {quantity} {product} at {price} each before {date}. Regards, {name}, {city}.",
    "Phone call with {name} ({city}) about {quantity} {product}. Price {price}. Delivery on {date}.",
)
FIRST_NAMES = (
    "Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Ida", "Jack", "Kate", "Liam", "Mona", "Noah",
    "Olivia", "Paul", "Rosa", "Sam", "Tina", "Victor",
)  # fmt: skip
LAST_NAMES = (
    "Adams", "Baker", "Clark", "Davis", "Evans", "Foster", "Garcia", "Hughes", "Ingram", "Jensen", "Keller", "Lopez",
    "Morris", "Nelson", "Owens", "Parker", "Reed", "Silva", "Turner", "Walker",
)  # fmt: skip
CITIES = (
    "Boston", "Chicago", "Dublin", "Geneva", "Houston", "Lisbon", "Madrid", "Oslo", "Prague", "Seattle", "Toronto",
    "Vienna", "Austin", "Denver", "Leeds", "Milan",
)  # fmt: skip
PRODUCTS = (
    "wooden chairs", "desk lamps", "blue mugs", "garden hoses", "steel shelves", "paper boxes", "wool blankets",
    "phone cases", "running shoes", "coffee filters", "office chairs", "water bottles", "bicycle tyres", "hand towels",
    "leather bags", "wall clocks", "picture frames", "rain jackets", "kitchen knives", "candle holders",
)  # fmt: skip
