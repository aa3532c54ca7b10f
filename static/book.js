// Opened as a file, the book cannot read its other pages, and the search page would log an error for each result's summary.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
